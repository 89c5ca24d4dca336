# Installed by `cmake --install`.
