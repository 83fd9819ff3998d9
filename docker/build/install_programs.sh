#!/usr/bin/env bash
# install_programs.sh BUILD SOURCE VENV OUT: installs what was compiled in the folder BUILD under
# OUT, as it lies in an image whose virtual environment is VENV.
set -euo pipefail

main() {
  local -r build=$1 source=$2 venv=$3 out=$4
  local -r site=$venv/lib/python3.11/site-packages
  DESTDIR=$out cmake --install "$build" --strip --component launcher --prefix "$venv"
  DESTDIR=$out cmake --install "$build" --strip --component python --prefix "$site"
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
