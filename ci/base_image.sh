#!/usr/bin/env bash
# Makes a Debian 12 base image from packages, for machines that can pull none.
set -euo pipefail
# shellcheck source=ci/machine.sh
source "$(dirname "$0")/machine.sh"

# The date of all files of the root, and of users in its /etc/shadow [s since 1970].
export SOURCE_DATE_EPOCH=1767225600

usage() {
  cat <<'END'
usage: ci/base_image.sh TAG

Builds a minimal Debian 12 with mmdebstrap from the machine's own apt sources and imports
it as TAG into the engine that DOCKER_HOST names. Root is needed. Equal packages give equal
bytes, wherever they come from: the digest of the one layer is in docker/locks/base.lock.
END
}

# The machine's own sources that are Debian's.
machine_sources() {
  local file
  for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    [[ -s $file ]] && echo "$file" && return
  done
}

main() {
  case ${1:---help} in
    --help | -h) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
  esac
  local -r tag=$1 sources=$(machine_sources)
  require_debian
  [[ $(id --user) == 0 ]] || die "root is needed to make a root file system; run it as root"
  [[ -n $sources ]] || die "apt knows no Debian; name a mirror in /etc/apt/sources.list.d/debian.sources"
  type -P mmdebstrap >/dev/null || die "there is no mmdebstrap; apt-get install mmdebstrap"
  docker version >/dev/null 2>&1 || die "no Docker engine answers; export \$(ci/engine start) first"
  require_space "making $tag" "${TMPDIR:-/tmp}" 1000
  say "making $tag with mmdebstrap (about 50 MB to download)"
  scratch=$(mktemp --directory)
  trap 'rm --recursive --force "$scratch"' EXIT
  # shellcheck disable=SC2016  # the hooks expand "$1" themselves: the root that is made
  # usrmerge is a Perl script that has done its work; an empty package takes its place.
  # mmdebstrap copies the machine's name and resolver into the root: they would be published.
  # So would be the machine's mirror: apt's own example, which names the public archive, replaces it.
  # Like Debian's own image it has dpkg not wait for the disk after each file.
  quietly "mmdebstrap" "" mmdebstrap --variant=minbase --include=ca-certificates,usr-is-merged \
    --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='chroot "$1" apt-get --quiet=2 --yes purge usrmerge perl-modules-5.36 libperl5.36 >/dev/null 2>&1' \
    --dpkgopt='path-include=/usr/share/doc/apt/examples/sources.list' \
    --customize-hook='rm -f "$1"/etc/resolv.conf; : >"$1"/etc/hostname' \
    --customize-hook='rm -rf "$1"/etc/apt/sources.list.d/* "$1"/var/log/* "$1"/var/lib/apt/lists/*' \
    --customize-hook='sed -n "/^deb /s/ main .*/ main/p" "$1"/usr/share/doc/apt/examples/sources.list >"$1"/etc/apt/sources.list' \
    --customize-hook='grep -q bookworm-security "$1"/etc/apt/sources.list && rm -r "$1"/usr/share/doc/apt/examples' \
    bookworm "$scratch/root.tar" "$sources"
  docker import --change 'CMD ["/bin/bash"]' "$scratch/root.tar" "$tag" >/dev/null
}

main "$@"
