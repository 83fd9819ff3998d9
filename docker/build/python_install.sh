#!/usr/bin/env bash
# python_install.sh LOCK VENV: installs a hashed lock, which is complete, into VENV and makes that
# first where it is not there; from /wheels (python_fetch.sh) or, with OFFLINE=1, from
# /vendor/wheels (ci/vendor). Asks no index.
set -euo pipefail

main() {
  local -r lock=$1 venv=$2
  local wheels=/wheels
  if [[ ${OFFLINE:-0} == 1 ]]; then
    wheels=/vendor/wheels
    [[ -d $wheels ]] || { echo "OFFLINE=1, but docker/vendor/wheels is not there: run ci/vendor" >&2 && exit 1; }
  fi
  [[ -d $venv ]] || python3.11 -m venv "$venv"
  "$venv/bin/python" -m pip --isolated install --quiet --no-compile --no-cache-dir \
    --disable-pip-version-check --root-user-action=ignore --require-hashes --no-deps --no-index \
    --find-links "$wheels" --requirement "$lock"
}

main "$@"
