#!/usr/bin/env bash
# prune.sh VENV WITH_COMPILE: removes what no training job loads from the locked wheels.
# Whole files only; no binary is altered and every licence file stays.
set -euo pipefail

main() {
  local -r site=$1/lib/python3.11/site-packages with_compile=$2
  cd "$site"
  prune_nvidia
  prune_torch
  prune_triton
  prune_python
  if [[ $with_compile == 0 ]]; then
    prune_compile
  fi
  find . -type d -empty -delete
}

prune_nvidia() {
  # Second copy of the run-time compiler, for programs that load two at once.
  rm --force nvidia/cu13/lib/libnvrtc*.alt.so*
  # One process, many GPUs: torch gives each GPU a process.
  rm --force nvidia/cu13/lib/libcusolverMg.so*
  # BLAS and FFTW under their classic names, for programs that are linked against those.
  rm --force nvidia/cu13/lib/lib{nvblas,cufftw}.so*
  # Hardware counters of profilers; torch.profiler needs libcupti alone.
  rm --force nvidia/cu13/lib/lib{nvperf_host,nvperf_target,checkpoint,pcsamplingutil}.so*
  # Linked into programs at build time; device bitcode and static libraries likewise.
  find nvidia -name '*.a' -delete
  find nvidia/nvshmem nvidia/cu13/lib -name '*.bc' -delete
  # Launch and transport plugins of NVSHMEM for its own launcher.
  rm --force nvidia/nvshmem/lib/nvshmem_{bootstrap,transport}_*
}

prune_torch() {
  # Test programs and code generators; torch_shm_manager is started by data loaders.
  find torch/bin -type f ! -name torch_shm_manager -delete
  # Needed to compile against torch, which happens in the build stage.
  rm --recursive --force torch/share/cmake
  find torch/lib -name '*.a' -delete
}

prune_python() {
  # Test suites of pure-Python dependencies.
  find sympy networkx mpmath numpy -type d -name tests -prune -exec rm --recursive --force {} +
  # Bindings for other MPI libraries than Debian's.
  find mpi4py -name '*.so' ! -name '*openmpi*' -name 'MPI.*' -delete
}

prune_triton() {
  # Counter libraries of its profiler, further copies of what nvidia/ has.
  rm --recursive --force triton/backends/nvidia/lib/cupti{,-blackwell} triton/_C/libproton.so
  # Triton's compiler for AMD's GPUs, loaded where there is one.
  rm --force triton/backends/amd/lib/libtriton_amd_codegen.so
  # Disassemblers and compiler passes for people who debug kernels.
  rm --recursive --force triton/instrumentation triton/FileCheck
  # Examples of passes that others add to its compiler.
  find triton/plugins -name '*.so*' -delete
  rm --force triton/backends/nvidia/bin/{cuobjdump,nvdisasm}
}

# Only torch.compile and kernels in Python use these.
prune_compile() {
  rm --recursive --force triton triton-*.dist-info
  rm --recursive --force cuda cuda_bindings-*.dist-info cuda_pathfinder-*.dist-info
  rm --recursive --force torch/include
  find nvidia -type d -name include -prune -exec rm --recursive --force {} +
}

main "$@"
