# LibTorch from the wheel, as imported targets made by hand: find_package(Torch) of a CUDA wheel asks
# for a CUDA toolkit and would bring a second CUDA runtime.
if(NOT SMP_PYTHON)
  set(SMP_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  if(NOT EXISTS "${SMP_PYTHON}")
    find_program(SMP_PYTHON3 python3 REQUIRED)
    set(SMP_PYTHON "${SMP_PYTHON3}")
  endif()
endif()
execute_process(
  COMMAND "${SMP_PYTHON}" -I -c  # -I: pip's isolated builds hide site-packages through PYTHONPATH
          "import importlib.util, sysconfig; s = importlib.util.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '', sysconfig.get_path('include'), \
sysconfig.get_config_var('EXT_SUFFIX'), sysconfig.get_python_version(), sep=';')"
  OUTPUT_VARIABLE smp_python_facts OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(POP_FRONT smp_python_facts SMP_TORCH_DIR SMP_PYTHON_INCLUDE SMP_EXT_SUFFIX SMP_PYTHON_RELEASE)
if(NOT SMP_TORCH_DIR)
  message(FATAL_ERROR "${SMP_PYTHON} has no torch; run ci/setup, name another interpreter with "
                      "-DSMP_PYTHON=, or build the launcher alone with -DSMP_WITH_TORCH=OFF")
endif()
file(STRINGS "${SMP_TORCH_DIR}/include/torch/headeronly/version.h" SMP_TORCH_VERSION REGEX "^  \"[0-9.]+\"$")
string(REGEX MATCH "[0-9.]+" SMP_TORCH_VERSION "${SMP_TORCH_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" SMP_TORCH_RELEASE "${SMP_TORCH_VERSION}")
message(STATUS "LibTorch: ${SMP_TORCH_DIR}, ${SMP_TORCH_VERSION}")
if(SMP_MODULE_PYTHON)
  execute_process(
    COMMAND "${SMP_MODULE_PYTHON}" -I -c
            "import sysconfig; print(sysconfig.get_path('include'), \
sysconfig.get_config_var('EXT_SUFFIX'), sysconfig.get_python_version(), sep=';')"
    OUTPUT_VARIABLE smp_python_facts OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(POP_FRONT smp_python_facts SMP_PYTHON_INCLUDE SMP_EXT_SUFFIX SMP_PYTHON_RELEASE)
  message(STATUS "Modules are for another interpreter: ${SMP_MODULE_PYTHON} (${SMP_EXT_SUFFIX})")
endif()

foreach(library torch torch_cpu torch_python c10)
  add_library(torch::${library} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${library} PROPERTIES
    IMPORTED_LOCATION "${SMP_TORCH_DIR}/lib/lib${library}.so"
    INTERFACE_INCLUDE_DIRECTORIES
    "${SMP_TORCH_DIR}/include;${SMP_TORCH_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO")
endforeach()
# The CUDA libraries that libtorch.so names are found by its own RUNPATH when it is loaded.
add_library(smp_torch INTERFACE)
target_link_libraries(smp_torch INTERFACE torch::torch torch::torch_cpu torch::c10)
target_link_options(smp_torch INTERFACE "-Wl,--allow-shlib-undefined")
# Torch's headers bring a {fmt} of their own before Debian's, which core/format.cc compiles.
target_compile_definitions(smp_torch INTERFACE FMT_HEADER_ONLY=1)
add_library(smp::torch ALIAS smp_torch)

add_library(smp_torch_python INTERFACE)
target_include_directories(smp_torch_python SYSTEM INTERFACE "${SMP_PYTHON_INCLUDE}")
target_link_libraries(smp_torch_python INTERFACE smp_torch torch::torch_python)
add_library(smp::torch_python ALIAS smp_torch_python)

# Most of what the runtime reads of Torch; a third of its time to compile.
smp_headers(torch_headers DEPS smp::torch HEADERS
            <torch/csrc/autograd/function.h> <torch/csrc/autograd/variable.h>
            <torch/csrc/distributed/c10d/ProcessGroup.hpp> <fmt/format.h>)
