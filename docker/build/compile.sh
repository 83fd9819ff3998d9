#!/usr/bin/env bash
# compile.sh SOURCE VENV OUT: builds the launcher and the runtime against VENV's torch and
# installs them under OUT as they lie in the image. ccache decides what is compiled again.
set -euo pipefail

main() {
  local -r source=$1 venv=$2 out=$3
  local -r build=/build/cmake site=$venv/lib/python3.11/site-packages
  # No debug information: it would be stripped, and costs a quarter of the time. No build id: it
  # would be a sum over the names of nvcc's temporary files, too, which no two builds share.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_MODULE_LINKER_FLAGS=-Wl,--build-id=none \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id=none \
    -DSMP_PYTHON="$venv/bin/python" -DSMP_WITH_CUDA=ON
  cmake --build "$build"
  DESTDIR=$out cmake --install "$build" --strip --component launcher --prefix "$venv"
  DESTDIR=$out cmake --install "$build" --strip --component python --prefix "$site"
  ccache --show-stats
  describe "$source" "$out"
}

# Describes what inventory.py cannot see in the finished image: our files, our version, and the
# packages whose headers are compiled into our programs.
describe() {
  local -r source=$1 folder=$2/usr/share/doc/smp
  mkdir --parents "$folder"
  (cd "$2" && find . -type f ! -path './usr/share/doc/*' -printf '/%P\n' | sort) >"$folder/files.list"
  sed --quiet 's/^version = "\(.*\)"$/\1/p' "$source/pyproject.toml" >"$folder/version"
  # shellcheck disable=SC2016  # dpkg-query expands its own format
  dpkg-query --show --showformat='${Package}\t${Version}\n' libboost1.81-dev \
    libboost-program-options1.81-dev libfmt-dev libsodium-dev nlohmann-json3-dev pybind11-dev 2>/dev/null \
    >"$folder/compiled-in.tsv" || true
}

main "$@"
