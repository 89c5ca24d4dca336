# cmake -DBINARY_DIR=... -DSOURCE_DIR=... [-DCXX=...] -P install_test.cmake: installs the build into a folder of its own,
# then configures, builds and runs tests/consumer against it.
cmake_minimum_required(VERSION 3.25)

set(room ${BINARY_DIR}/install_test)
file(REMOVE_RECURSE ${room})
file(MAKE_DIRECTORY ${room})

function(must what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} must succeed. Received ${status}:\n${text}")
  endif()
  string(STRIP "${text}" text)
  set(said "${text}" PARENT_SCOPE)
endfunction()

must("the installation" ${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${room}/prefix)
must("the installed program" ${room}/prefix/bin/hspmd --version)
message(STATUS "${said}")
must("the consumer's configuration" ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer -B ${room}/build
     -DCMAKE_PREFIX_PATH=${room}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
must("the consumer's build" ${CMAKE_COMMAND} --build ${room}/build)
must("the consumer's run" ${room}/build/consumer)
message(STATUS "${said}")
file(REMOVE_RECURSE ${room})
