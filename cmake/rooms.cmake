# hspmd_room(NAME [ROOMS room...] [LINKS target...] [SUBROOMS folder...])
#
# Makes the library hspmd_NAME from src/hspmd/NAME/*.cc (and its subrooms), and the test program NAME_test from
# the *_test.cc beside them.
include_guard()

set(HSPMD_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Werror)

find_program(HSPMD_CCACHE ccache)
if(HSPMD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HSPMD_CCACHE})
endif()

if(HSPMD_SANITIZE)
  add_compile_options(-fsanitize=${HSPMD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HSPMD_SANITIZE})
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
endfunction()

function(hspmd_room name)
  cmake_parse_arguments(ARG "" "" "ROOMS;LINKS;SUBROOMS" ${ARGN})
  set(folders src/hspmd/${name})
  foreach(subroom IN LISTS ARG_SUBROOMS)
    list(APPEND folders src/hspmd/${name}/${subroom})
  endforeach()
  set(sources "")
  foreach(folder IN LISTS folders)
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz)\\.cc$")

  add_library(hspmd_${name} STATIC ${sources})
  add_library(hspmd::${name} ALIAS hspmd_${name})
  target_compile_options(hspmd_${name} PRIVATE ${HSPMD_WARNINGS})
  target_include_directories(hspmd_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                  $<INSTALL_INTERFACE:include>)
  list(TRANSFORM ARG_ROOMS PREPEND hspmd_)
  target_link_libraries(hspmd_${name} PUBLIC ${ARG_ROOMS} ${ARG_LINKS})
  set_property(GLOBAL APPEND PROPERTY HSPMD_ROOMS hspmd_${name})

  if(HSPMD_TESTS AND tests)
    hspmd_test(${name}_test SOURCES ${tests} LINKS hspmd_${name})
  endif()
endfunction()
