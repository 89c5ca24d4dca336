# cmake --install: the program, the headers, the rooms' libraries and find_package(hspmd) with the target hspmd::hspmd.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What `#include <hspmd/hspmd.h>` needs.
add_library(hspmd_public INTERFACE)
set_target_properties(hspmd_public PROPERTIES EXPORT_NAME hspmd)
add_library(hspmd::hspmd ALIAS hspmd_public)
target_link_libraries(hspmd_public INTERFACE hspmd_runtime hspmd_models)
target_compile_features(hspmd_public INTERFACE cxx_std_20)

get_property(rooms GLOBAL PROPERTY HSPMD_ROOMS)
foreach(room IN LISTS rooms)
  string(REGEX REPLACE "^hspmd_" "" exported ${room})
  set_target_properties(${room} PROPERTIES EXPORT_NAME ${exported})
endforeach()
if(TARGET hspmd_aten)
  list(APPEND rooms hspmd_aten)
endif()

install(TARGETS ${rooms} hspmd_public EXPORT hspmd
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS hspmd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/hspmd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(HSPMD_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/hspmd)
install(EXPORT hspmd FILE hspmd-targets.cmake NAMESPACE hspmd:: DESTINATION ${HSPMD_PACKAGE})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/hspmd-config.cmake.in ${PROJECT_BINARY_DIR}/hspmd-config.cmake
                              INSTALL_DESTINATION ${HSPMD_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hspmd-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hspmd-config.cmake ${PROJECT_BINARY_DIR}/hspmd-config-version.cmake
        DESTINATION ${HSPMD_PACKAGE})
