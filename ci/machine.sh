# What the scripts in ci/ need to know about the machine; sourced, never run.
# shellcheck shell=bash

# Ends the script unless this is Debian 12, and says how to go on elsewhere.
require_debian_12() {
  local id="" version=""
  if [[ -r /etc/os-release ]]; then
    # shellcheck disable=SC1091  # a file of the machine
    read -r id version < <(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")
  fi
  [[ $id == debian && $version == 12 ]] && return
  cat >&2 <<END
$(basename "$0"): this is "${id:-unknown} ${version:-}", not Debian 12, which the build and its
locked packages expect. With a Docker engine, go on in a container instead:
  docker run --rm -it --volume "\$PWD:/src" --workdir /src debian:bookworm ci/quickstart
or build the image, which needs no Debian here:
  docker build --tag smp-train:dev .
END
  exit 1
}

# Runs a command as root: as it is, or through sudo.
as_root() {
  if [[ $(id --user) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    echo "$(basename "$0"): needs root for: $*; run it as root or install sudo" >&2
    exit 1
  fi
}

# apt_install NAME...: installs the Debian packages that are not there yet.
apt_install() {
  local missing=()
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} == 0 ]] && return
  echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
  as_root apt-get -o DPkg::Lock::Timeout=300 -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y \
    -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}" >/dev/null
}

# Debian's client belongs to Debian's engine; another one on PATH may lack BuildKit.
docker() { "$(type -P /usr/bin/docker || type -P docker)" "$@"; }

missing_packages() {
  local name
  for name in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$name" 2>/dev/null |
      grep --quiet --line-regexp installed || echo "$name"
  done
}
