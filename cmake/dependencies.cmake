# What the rooms link against; all of it comes from Debian 12 (scripts/install-deps).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# UCX, seen by runtime/transport alone.
add_library(hspmd_ucx INTERFACE)
find_library(HSPMD_UCP ucp REQUIRED)
find_library(HSPMD_UCS ucs REQUIRED)
# Only programs that send messages load it: it hooks into memory and signals as soon as it is there.
target_link_libraries(hspmd_ucx INTERFACE "-Wl,--push-state,--as-needed,${HSPMD_UCP},${HSPMD_UCS},--pop-state")

# libtorch and OpenBLAS, seen by runtime/kernels alone.
if(HSPMD_ATEN)
  add_library(hspmd_aten INTERFACE)
  find_library(HSPMD_TORCH_CPU torch_cpu REQUIRED)
  find_library(HSPMD_C10 c10 REQUIRED)
  find_library(HSPMD_OPENBLAS NAMES openblas REQUIRED)
  find_path(HSPMD_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-pthread x86_64-linux-gnu/openblas-pthread REQUIRED)
  target_include_directories(hspmd_aten SYSTEM INTERFACE ${HSPMD_CBLAS_INCLUDE})
  target_link_libraries(hspmd_aten INTERFACE ${HSPMD_TORCH_CPU} ${HSPMD_C10} ${HSPMD_OPENBLAS})
  set(HSPMD_ATEN_LIBRARIES hspmd_aten)
endif()
