# CUDA for the runtime: nvcc's language, and what host code sees of CUDA, as smp::cuda. Kernels take
# pointers and a stream, so no .cu file includes Torch. SMP_HAS_CUDA says what came of SMP_WITH_CUDA.
set(SMP_HAS_CUDA OFF)
set(SMP_CUDA_RELEASE "")

include(find_nvcc.cmake)

# smp_no_cuda(REASON …): without CUDA, unless it was asked for. What torch could use of a GPU then
# stays slow, which is easily overlooked.
macro(smp_no_cuda)
  if(SMP_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SMP_WITH_CUDA=ON: " ${ARGN})
  endif()
  message(WARNING "GPU code is not compiled: " ${ARGN} ". On GPUs this build has no NCCL and no "
                  "kernels of its own. -DSMP_WITH_CUDA=OFF says that this is meant")
endmacro()

if(NOT SMP_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SMP_WITH_CUDA is ${SMP_WITH_CUDA}; expected AUTO, ON or OFF")
endif()
file(GLOB SMP_CUDART "${SMP_TORCH_DIR}/../nvidia/cu*/lib/libcudart.so.*")
set(SMP_NCCL "${SMP_TORCH_DIR}/../nvidia/nccl/lib/libnccl.so.2")
if(SMP_WITH_CUDA STREQUAL "OFF")
  message(STATUS "GPU code is not compiled: SMP_WITH_CUDA=OFF")
elseif(NOT EXISTS "${SMP_TORCH_DIR}/lib/libtorch_cuda.so" OR NOT SMP_CUDART)
  message(STATUS "GPU code is not compiled: the torch in ${SMP_TORCH_DIR} was built without CUDA")
  if(SMP_WITH_CUDA STREQUAL "ON")
    smp_no_cuda("the torch in ${SMP_TORCH_DIR} was built without CUDA")
  endif()
elseif(NOT EXISTS "${SMP_NCCL}")
  smp_no_cuda("torch's NCCL is not at ${SMP_NCCL}; install the wheel nvidia-nccl-cu* that torch asks for")
else()
  string(REGEX REPLACE ".*\\.so\\." "" smp_cudart_major "${SMP_CUDART}")
  # A toolkit of the machine, or PyPI's wheels of it (docker/locks/nvcc.lock), which lie with torch's.
  string(REPLACE ":" ";" smp_nvcc_folders "$ENV{PATH}")
  list(APPEND smp_nvcc_folders "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin
       "${SMP_TORCH_DIR}/../nvidia/cu${smp_cudart_major}/bin")
  if(SMP_NVCC)
    cmake_path(GET SMP_NVCC PARENT_PATH smp_nvcc_folders)
  endif()
  smp_find_nvcc(smp_nvcc "${smp_cudart_major}" ${smp_nvcc_folders})
  if(smp_nvcc)
    set(SMP_NVCC "${smp_nvcc}" CACHE FILEPATH "CUDA's compiler, of the release that torch has" FORCE)
    set(SMP_HAS_CUDA ON)
    set(SMP_CUDA_RELEASE "${smp_cudart_major}")
  elseif(smp_nvcc_REJECTED)
    smp_no_cuda("torch comes with CUDA ${smp_cudart_major}, and there is only ${smp_nvcc_REJECTED}")
  else()
    smp_no_cuda("no nvcc is found on PATH, in CUDA_HOME, /usr/local/cuda or torch's nvidia/cu"
                "${smp_cudart_major}; PyPI has it (docker/locks/nvcc.lock)")
  endif()
endif()

add_library(smp_cuda_headers INTERFACE)
if(SMP_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER "${SMP_NVCC}")
  # GPUs that torch's wheel is made for; newer ones compile the last from PTX.
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual" CACHE STRING "GPUs to compile for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # torch's own, by path: a process must have one only
  set(CMAKE_CUDA_STANDARD 17)           # CMake 3.25 knows no later one of nvcc 13
  enable_language(CUDA)
  if(SMP_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${SMP_CCACHE_LAUNCHER})
  endif()
  add_library(torch::nccl SHARED IMPORTED GLOBAL)
  set_target_properties(torch::nccl PROPERTIES IMPORTED_LOCATION "${SMP_NCCL}")
  message(STATUS "GPU code: ${SMP_NVCC} for ${CMAKE_CUDA_ARCHITECTURES}")
  add_library(torch::c10_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(torch::c10_cuda PROPERTIES IMPORTED_LOCATION
                                                   "${SMP_TORCH_DIR}/lib/libc10_cuda.so")
  target_compile_definitions(smp_cuda_headers INTERFACE SMP_HAS_CUDA=1)
  target_include_directories(smp_cuda_headers SYSTEM INTERFACE
                             ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}
                             "${SMP_TORCH_DIR}/../nvidia/nccl/include")
  # Torch has loaded both before any of our modules is.
  target_link_libraries(smp_cuda_headers INTERFACE torch::c10_cuda "${SMP_CUDART}")
endif()
