#!/usr/bin/env bash
# dev_install.sh LOCKS VENV: adds the packages of the examples and tests to the venv, and marks it
# as complete for ci/build.
set -euo pipefail

main() {
  local -r locks=$1 venv=$2
  local wheels name
  for name in uv build examples dev; do
    wheels=$(mktemp --directory)
    /build/python_fetch.sh "$locks/$name.lock" "$wheels"
    "$venv/bin/python" -m pip --isolated install --quiet --no-cache-dir --disable-pip-version-check \
      --root-user-action=ignore --require-hashes --no-deps --no-index --find-links "$wheels" \
      --requirement "$locks/$name.lock"
    rm --recursive --force "$wheels"
  done
  # As ci/setup writes them: in this image a link .venv -> /opt/venv is all that it would do.
  sum_of "$locks"/{python,build,examples}.lock >"$venv/locks.sha256"
  sum_of "$locks/dev.lock" >"$venv/tests.sha256"
}

sum_of() { cat "$@" | sha256sum | cut --delimiter=' ' --fields=1; }

main "$@"
