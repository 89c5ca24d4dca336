# hspmd_room(NAME [FOLDER path] [ROOMS room...] [LINKS target...])
#
# Makes the library hspmd_NAME from src/hspmd/FOLDER/*.cc (FOLDER is NAME unless given), and the test program NAME_test from
# the *_test.cc beside them. Two lists remember the rooms, for the installation and for the test of their arrows:
#   HSPMD_ROOMS   the targets
#   HSPMD_ARROWS  NAME|FOLDER|room,room,...
include_guard()

set(HSPMD_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND HSPMD_WARNINGS -Wno-restrict)  # g++ 12 warns of std::string's own operator+ (PR105651)
endif()

find_program(HSPMD_CCACHE ccache)
if(HSPMD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HSPMD_CCACHE})
endif()

if(HSPMD_SANITIZE)
  add_compile_options(-fsanitize=${HSPMD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HSPMD_SANITIZE})
endif()

if(HSPMD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # all rooms tell the fuzzer where they have been
endif()

if(HSPMD_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# A room's tests share one budget; a test program that runs longer has failed.
set(HSPMD_TEST_SECONDS 120 CACHE STRING "Seconds that one room's tests may take")

function(hspmd_test name)
  cmake_parse_arguments(ARG "" "SECONDS" "SOURCES;LINKS;LABELS" ${ARGN})
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS ${HSPMD_TEST_SECONDS})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE ${HSPMD_WARNINGS})
  target_compile_definitions(${name} PRIVATE HSPMD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_SECONDS} LABELS "${ARG_LABELS}")
  if(HSPMD_SANITIZE MATCHES "thread")  # UCX's hooks into memory run where a thread is not known to the sanitizer yet
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
                         "UCX_MEM_MMAP_HOOK_MODE=none;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt")
  endif()
endfunction()

function(hspmd_room name)
  cmake_parse_arguments(ARG "" "FOLDER" "ROOMS;LINKS" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/hspmd/${ARG_FOLDER}/*.cc)
  if(name STREQUAL "kernels" AND NOT HSPMD_ATEN)
    list(FILTER sources EXCLUDE REGEX "/(aten|fused|plain)_")
  elseif(name STREQUAL "kernels")
    list(FILTER sources EXCLUDE REGEX "/without_aten")
  endif()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz)\\.cc$")

  list(JOIN ARG_ROOMS "," arrow)
  set_property(GLOBAL APPEND PROPERTY HSPMD_ARROWS "${name}|${ARG_FOLDER}|${arrow}")
  list(TRANSFORM ARG_ROOMS PREPEND hspmd_)
  if(sources)
    set(reach PUBLIC)
    add_library(hspmd_${name} STATIC ${sources})
    target_compile_options(hspmd_${name} PRIVATE ${HSPMD_WARNINGS})
  else()
    set(reach INTERFACE)
    add_library(hspmd_${name} INTERFACE)
  endif()
  add_library(hspmd::${name} ALIAS hspmd_${name})
  set_target_properties(hspmd_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(hspmd_${name} ${reach} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                    $<INSTALL_INTERFACE:include>)
  target_compile_features(hspmd_${name} ${reach} cxx_std_20)
  target_link_libraries(hspmd_${name} ${reach} ${ARG_ROOMS} ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY HSPMD_ROOMS hspmd_${name})

  if(HSPMD_TESTS AND tests)
    hspmd_test(${name}_test SOURCES ${tests} LINKS hspmd_${name})
  endif()
endfunction()
