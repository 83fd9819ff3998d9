#!/usr/bin/env bash
# apt_install.sh LIST...: installs the Debian packages that the list files name, in the versions
# of debian.lock where the mirror still has them.
# apt_install.sh --download DIR LIST...: fetches them for a build without network instead.
#
# Optional build secrets: apt_sources (deb822), apt_conf, ca_bundle. Nothing of them stays.
# OFFLINE=1 takes packages and lists from /vendor (ci/vendor). STRICT_LOCK=1 fails where a
# version differs from the lock; else such a package is named in the build's log. APT_SNAPSHOT is
# the address of an archive as it was, which still has the locked versions.
set -euo pipefail

readonly lock=/build/debian.lock vendor=/vendor/debian secrets=/run/secrets

# One option of apt-get a line.
source_options() {
  local -r scratch=$1
  if [[ ${OFFLINE:-0} == 1 ]]; then
    printf '%s\n' "-oDir::Etc::SourceList=/dev/null" "-oDir::Etc::SourceParts=$vendor/sources" \
      "--no-download"
    return
  fi
  if [[ -n ${APT_SNAPSHOT:-} ]]; then
    # The snapshot's release files have expired; they are signed all the same.
    printf 'Types: deb\nURIs: %s\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: %s\nCheck-Valid-Until: no\n' \
      "$APT_SNAPSHOT" /usr/share/keyrings/debian-archive-keyring.gpg >"$scratch/snapshot.sources"
    printf '%s\n' "-oDir::Etc::SourceList=/dev/null" "-oDir::Etc::SourceParts=$scratch"
  elif [[ -s $secrets/apt_sources ]]; then
    # apt reads only files with this suffix.
    cp "$secrets/apt_sources" "$scratch/builder.sources"
    printf '%s\n' "-oDir::Etc::SourceList=/dev/null" "-oDir::Etc::SourceParts=$scratch"
  fi
  if [[ -s $secrets/ca_bundle ]]; then
    # apt fetches as the user _apt, whom the secret is hidden from.
    chmod 755 "$scratch"
    install --mode=644 "$secrets/ca_bundle" "$scratch/ca.pem"
    echo "-oAcquire::https::CAInfo=$scratch/ca.pem"
  fi
}

# A preference, not a demand: what the mirror dropped comes in the version that it has.
pin_options() {
  local -r scratch=$1
  [[ -s $lock ]] || return 0
  sed --regexp-extended --quiet \
    's/^([^#=]+)=(.+)$/Package: \1\nPin: version \2\nPin-Priority: 990\n/p' "$lock" >"$scratch/pins"
  echo "-oDir::Etc::Preferences=$scratch/pins"
}

update() {
  if [[ ${OFFLINE:-0} == 1 ]]; then
    [[ -d $vendor/sources ]] || { echo "OFFLINE=1, but docker/vendor is empty: run ci/vendor" >&2 && exit 1; }
    cp "$vendor"/lists/* /var/lib/apt/lists/
    cp --no-clobber "$vendor"/archives/*.deb /var/cache/apt/archives/
  else
    apt-get "$@" --quiet=2 update
  fi
}

# Names packages that are not as locked.
compare_with_lock() {
  local different
  [[ -s $lock ]] || return 0
  # shellcheck disable=SC2016  # dpkg-query expands its own format
  different=$(dpkg-query --show --showformat='${Package}=${Version}\n' | sort |
    comm -23 - <(grep --invert-match '^#' "$lock" | sort))
  [[ -n $different ]] || return 0
  echo "debian.lock has other versions of (ci/lock --debian refreshes it):" "${different//$'\n'/ }"
  [[ ${STRICT_LOCK:-0} != 1 ]]
}

# Removes files that would differ between two builds of the same packages.
remove_traces() {
  rm --recursive --force /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old \
    /etc/machine-id /var/lib/dbus/machine-id
  # The day on which a package made its user.
  sed --in-place --regexp-extended 's/^([^:]*:[^:]*:)[0-9]+:/\1:/' /etc/shadow
  rm --force /etc/shadow- /etc/passwd- /etc/group- /etc/gshadow-
  # No image holds a key: each container makes its own.
  rm --force /etc/ssh/ssh_host_*
}

# Packages, apt's lists and its sources: all that a later build needs in place of a mirror.
download() {
  local -r target=$1 scratch=$2
  shift 2
  mkdir --parents "$target"/{archives/partial,lists,sources}
  apt-get "$@"
  rm --recursive --force "$target"/archives/{partial,lock}
  find /var/lib/apt/lists -maxdepth 1 -type f ! -name lock -exec cp --target-directory="$target/lists" {} +
  if [[ -s $scratch/builder.sources ]]; then
    cp "$scratch/builder.sources" "$target/sources/"
  else
    cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list "$target/sources/" 2>/dev/null || true
    [[ ! -f $target/sources/sources.list ]] || mv "$target"/sources/{sources,vendor}.list
  fi
}

main() {
  local scratch target="" options=() packages=()
  if [[ $1 == --download ]]; then
    target=$2
    shift 2
  fi
  scratch=$(mktemp --directory)
  # shellcheck disable=SC2064  # the path is known now
  trap "rm --recursive --force '$scratch'" EXIT
  mapfile -t options < <(source_options "$scratch" && pin_options "$scratch")
  mapfile -t packages < <(sed --regexp-extended '/^(#|$)/d' "$@" | sort --unique)
  if [[ -s $secrets/apt_conf ]]; then
    export APT_CONFIG=$secrets/apt_conf
  fi
  # Docker's hook would empty the cache mount after each package.
  rm --force /etc/apt/apt.conf.d/docker-clean
  export DEBIAN_FRONTEND=noninteractive
  update "${options[@]}"
  if [[ -n $target ]]; then
    options+=("-oDir::Cache::archives=$target/archives" --download-only)
  fi
  options+=(--quiet=2 --yes -oDpkg::Use-Pty=0 install --no-install-recommends)
  if [[ -n $target ]]; then
    download "$target" "$scratch" "${options[@]}" "${packages[@]}"
    return
  fi
  apt-get "${options[@]}" "${packages[@]}" >/dev/null
  compare_with_lock
  remove_traces
}

main "$@"
