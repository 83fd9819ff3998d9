#!/usr/bin/env bash
# apt_install.sh LIST...: installs the Debian packages that the list files name.
# Optional build secrets: apt_sources (deb822), apt_conf, ca_bundle. Nothing of them stays.
set -euo pipefail

# One option of apt-get a line.
secret_options() {
  local -r secrets=/run/secrets scratch=$1
  if [[ -s $secrets/apt_sources ]]; then
    # apt reads only files with this suffix.
    cp "$secrets/apt_sources" "$scratch/builder.sources"
    printf '%s\n' "-oDir::Etc::SourceList=/dev/null" "-oDir::Etc::SourceParts=$scratch"
  fi
  if [[ -s $secrets/ca_bundle ]]; then
    echo "-oAcquire::https::CAInfo=$secrets/ca_bundle"
  fi
}

# What would differ between two builds of the same packages.
remove_traces() {
  rm --recursive --force /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old \
    /etc/machine-id /var/lib/dbus/machine-id
  # No image holds a key: each container makes its own.
  rm --force /etc/ssh/ssh_host_*
}

main() {
  local scratch options=() packages=()
  scratch=$(mktemp --directory)
  # shellcheck disable=SC2064  # the path is known now
  trap "rm --recursive --force '$scratch'" EXIT
  mapfile -t options < <(secret_options "$scratch")
  mapfile -t packages < <(sed --regexp-extended '/^(#|$)/d' "$@" | sort --unique)
  if [[ -s /run/secrets/apt_conf ]]; then
    export APT_CONFIG=/run/secrets/apt_conf
  fi
  # It would empty the cache mount after each package.
  rm --force /etc/apt/apt.conf.d/docker-clean
  export DEBIAN_FRONTEND=noninteractive
  apt-get "${options[@]}" --quiet=2 update
  apt-get "${options[@]}" --quiet=2 --yes -oDpkg::Use-Pty=0 install --no-install-recommends \
    "${packages[@]}" >/dev/null
  remove_traces
}

main "$@"
