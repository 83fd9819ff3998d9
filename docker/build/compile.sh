#!/usr/bin/env bash
# compile.sh SOURCE VENV OUT: builds the launcher and the runtime against VENV's torch and
# installs them under OUT as they lie in the image. ccache decides what is compiled again.
set -euo pipefail

main() {
  local -r source=$1 venv=$2 out=$3
  local -r build=/build/cmake site=$venv/lib/python3.11/site-packages
  # No debug information: it would be stripped, and costs a quarter of the time.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
    -DSMP_PYTHON="$venv/bin/python"
  cmake --build "$build"
  DESTDIR=$out cmake --install "$build" --strip --component launcher --prefix "$venv"
  DESTDIR=$out cmake --install "$build" --strip --component python --prefix "$site"
  ccache --show-stats
}

main "$@"
