#!/usr/bin/env bash
# python_install.sh LOCK VENV: makes VENV and installs the hashed lock into it.
# Optional build secrets: pip_conf, ca_bundle, netrc. Nothing of them stays.
# OFFLINE=1 takes the wheels from /vendor/wheels (ci/vendor) and asks no index.
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
  local -r lock=$1 venv=$2
  local options=()
  if [[ ${OFFLINE:-0} == 1 ]]; then
    options=(--isolated --no-index --find-links /vendor/wheels)
  else
    use_secrets
  fi
  python3.11 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-compile --no-cache-dir --disable-pip-version-check \
    --root-user-action=ignore --require-hashes "${options[@]}" --requirement "$lock"
}

main "$@"
