#!/usr/bin/env bash
# test.sh SOURCE VENV: builds everything with warnings as errors and runs the unit tests and the
# job trees of tests/golden; fails where one of them does.
set -euo pipefail

main() {
  local -r source=$1 venv=$2 build=/build/test
  # As compile.sh, so that their compiler caches meet.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DSMP_DEVELOPER_MODE=ON \
    -DSMP_PYTHON="$venv/bin/python" -DSMP_WITH_CUDA=ON
  cmake --build "$build"
  # The documents' tests are pytest's, which the image does not have.
  ctest --test-dir "$build" --label-regex '^(unit|golden)$' --exclude-regex '^documents$' \
    --parallel "$(nproc)" --output-on-failure
  rm --recursive --force "$build"
}

main "$@"
