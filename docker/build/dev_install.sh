#!/usr/bin/env bash
# dev_install.sh LOCKS VENV: adds the packages of the tests to the venv, and marks it as complete
# for ci/build.
set -euo pipefail

main() {
  local -r locks=$1 venv=$2
  local wheels
  wheels=$(mktemp --directory)
  /build/python_fetch.sh "$locks/dev.lock" "$wheels"
  "$venv/bin/python" -m pip --isolated install --quiet --no-cache-dir --disable-pip-version-check \
    --root-user-action=ignore --require-hashes --no-deps --no-index --find-links "$wheels" \
    --requirement "$locks/dev.lock"
  rm --recursive --force "$wheels"
  # As ci/setup writes it: in this image a link .venv -> /opt/venv is all that it would do.
  cat "$locks"/{python,dev}.lock | sha256sum | cut --delimiter=' ' --fields=1 >"$venv/locks.sha256"
}

main "$@"
