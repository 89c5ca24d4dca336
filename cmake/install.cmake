# `cmake --install`: the program, one library a room, their headers, and what find_package(hspmd) reads.
#
#   find_package(hspmd REQUIRED)
#   target_link_libraries(my_tool PRIVATE hspmd::hspmd)     everything; or a room alone: hspmd::comm
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY HSPMD_ROOMS)
add_library(hspmd_all INTERFACE)
set_target_properties(hspmd_all PROPERTIES EXPORT_NAME hspmd)
target_link_libraries(hspmd_all INTERFACE ${rooms})
add_library(hspmd::hspmd ALIAS hspmd_all)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/hspmd)
install(TARGETS hspmd_all ${rooms} hspmd_ucx hspmd_grpc ${HSPMD_ATEN_LIBRARIES} EXPORT hspmd)
install(EXPORT hspmd NAMESPACE hspmd:: FILE hspmdTargets.cmake DESTINATION ${package})
install(TARGETS hspmd)
install(DIRECTORY src/hspmd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN control/job.h EXCLUDE           # of the wire, whose headers stay here
        PATTERN control/wire.h EXCLUDE
        PATTERN annotation_samples.h EXCLUDE    # of tests
        PATTERN given_values.h EXCLUDE
        PATTERN guarded_run.h EXCLUDE
        PATTERN kernel_cases.h EXCLUDE)

configure_package_config_file(cmake/hspmdConfig.cmake.in ${PROJECT_BINARY_DIR}/hspmdConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hspmdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hspmdConfig.cmake ${PROJECT_BINARY_DIR}/hspmdConfigVersion.cmake DESTINATION ${package})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
