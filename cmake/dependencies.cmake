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

# gRPC, seen by control alone.
add_library(hspmd_grpc INTERFACE)
find_library(HSPMD_GRPCPP grpc++ REQUIRED)
find_library(HSPMD_GRPC grpc REQUIRED)
find_library(HSPMD_GPR gpr REQUIRED)
find_library(HSPMD_ABSL absl_synchronization REQUIRED)  # in the headers of gRPC
find_library(HSPMD_PROTOBUF protobuf REQUIRED)
find_program(HSPMD_PROTOC protoc REQUIRED)
find_program(HSPMD_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
target_link_libraries(hspmd_grpc INTERFACE ${HSPMD_GRPCPP} ${HSPMD_GRPC} ${HSPMD_GPR} ${HSPMD_ABSL} ${HSPMD_PROTOBUF})

# hspmd_wire(ROOM FILE.proto): compiles what the room says over the network; included as "hspmd/ROOM/FILE.pb.h".
# Generated code is not held to our warnings, and none of it is installed.
function(hspmd_wire room proto)
  set(out ${PROJECT_BINARY_DIR}/include)
  string(REGEX REPLACE "^src/(.*)\\.proto$" "${out}/\\1" stem ${proto})
  set(sources ${stem}.pb.cc ${stem}.grpc.pb.cc)
  add_custom_command(OUTPUT ${sources} ${stem}.pb.h ${stem}.grpc.pb.h
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
                     COMMAND ${HSPMD_PROTOC} -I ${PROJECT_SOURCE_DIR}/src --cpp_out=${out} --grpc_out=${out}
                             --plugin=protoc-gen-grpc=${HSPMD_GRPC_PLUGIN} ${PROJECT_SOURCE_DIR}/${proto}
                     DEPENDS ${PROJECT_SOURCE_DIR}/${proto} COMMENT "Compiling ${proto}" VERBATIM)
  add_library(hspmd_${room}_wire OBJECT ${sources} ${stem}.pb.h ${stem}.grpc.pb.h)
  target_compile_options(hspmd_${room}_wire PRIVATE -w)
  target_include_directories(hspmd_${room}_wire SYSTEM PUBLIC $<BUILD_INTERFACE:${out}>)
  target_sources(hspmd_${room} PRIVATE $<TARGET_OBJECTS:hspmd_${room}_wire>)
  target_include_directories(hspmd_${room} SYSTEM PUBLIC $<BUILD_INTERFACE:${out}>)
  add_dependencies(hspmd_${room} hspmd_${room}_wire)
endfunction()
