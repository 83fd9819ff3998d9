#!/usr/bin/env bash
# test.sh SOURCE VENV: builds everything and runs the unit tests and the job trees of
# tests/golden; fails where one of them does.
set -euo pipefail

main() {
  local -r source=$1 venv=$2 build=/build/cmake
  # Folder and flags of compile.sh, or no object of its compiler cache fits; so no -Werror, which
  # ci/build has.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DSMP_DEVELOPER_MODE=ON -DSMP_WERROR=OFF \
    -DSMP_PYTHON="$venv/bin/python" -DSMP_WITH_CUDA=ON
  cmake --build "$build" --target all tests
  ctest --test-dir "$build" --label-regex '^(unit|golden)$' --parallel "$(nproc)" \
    --output-on-failure
  rm --recursive --force "$build"
}

main "$@"
