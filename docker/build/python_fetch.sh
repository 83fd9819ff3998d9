#!/usr/bin/env bash
# python_fetch.sh LOCK DIR: fetches the wheels of a hashed lock; nothing with OFFLINE=1.
# Optional build secrets: pip_conf, ca_bundle, netrc. Nothing of them stays.
set -euo pipefail

use_secrets() {
  local -r secrets=/run/secrets
  if [[ -s $secrets/pip_conf ]]; then
    export PIP_CONFIG_FILE=$secrets/pip_conf
  fi
  if [[ -s $secrets/ca_bundle ]]; then
    export PIP_CERT=$secrets/ca_bundle SSL_CERT_FILE=$secrets/ca_bundle
  fi
  if [[ -s $secrets/netrc ]]; then
    export NETRC=$secrets/netrc
  fi
}

main() {
  local -r lock=$1 folder=$2
  local scratch
  mkdir --parents "$folder"
  [[ ${OFFLINE:-0} != 1 ]] || return 0
  scratch=$(mktemp --directory)
  python3.11 -m venv "$scratch"
  use_secrets
  "$scratch/bin/python" -m pip download --quiet --no-cache-dir --disable-pip-version-check \
    --no-deps --require-hashes --only-binary :all: --dest "$folder" --requirement "$lock"
  rm --recursive --force "$scratch"
}

main "$@"
