# The installed package serves a project that knows nothing of this tree.
#   cmake -DBUILD=DIR -DCONSUMER=DIR -DCOMPILER=PATH -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

set(work ${BUILD}/install_test)
file(REMOVE_RECURSE ${work})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${code}:\n${said}")
  endif()
  message(STATUS "${said}")
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
file(GLOB_RECURSE of_tests ${work}/prefix/include/*samples* ${work}/prefix/include/*given_values* ${work}/prefix/include/*_cases*
     ${work}/prefix/include/*guarded*)
if(of_tests)
  message(FATAL_ERROR "what only tests use must not be installed: ${of_tests}")
endif()
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${work}/build -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${work}/prefix)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/consumer)
run(${work}/build/identity)
run(${work}/prefix/bin/hspmd --version)
