#!/usr/bin/env bash
# split.sh VENV OUT: moves VENV into OUT/{nvidia,torch,rest}, each with the full path inside,
# so that each becomes a layer of its own and an update of one leaves the others alone.
set -euo pipefail

main() {
  local -r venv=$1 out=$2
  local -r site=$venv/lib/python3.11/site-packages
  mkdir --parents "$out"/{nvidia,torch}"$site" "$out/rest$(dirname "$venv")"
  mv "$site/nvidia" "$out/nvidia$site/"
  mv "$site/torch" "$out/torch$site/"
  if [[ -d $site/triton ]]; then
    mv "$site/triton" "$out/torch$site/"
  fi
  mv "$venv" "$out/rest$venv"
}

main "$@"
