#!/usr/bin/env bash
# compile.sh SOURCE VENV OUT: builds the launcher and the runtime against VENV's torch and
# installs them under OUT by install_programs.sh. ccache decides what is compiled again.
set -euo pipefail

main() {
  local -r source=$1 venv=$2 out=$3
  local -r build=/build/cmake
  # No debug information: it would be stripped, and costs a quarter of the time. No build id: it
  # would be a sum over the names of nvcc's temporary files, too, which no two builds share.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_MODULE_LINKER_FLAGS=-Wl,--build-id=none \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id=none \
    -DSMP_PYTHON="$venv/bin/python" -DSMP_WITH_CUDA=ON
  cmake --build "$build"
  /build/install_programs.sh "$build" "$source" "$venv" "$out"
  ccache --show-stats
}

main "$@"
