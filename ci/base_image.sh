#!/usr/bin/env bash
# Makes a Debian 12 base image from packages, for machines that can pull none.
set -euo pipefail

usage() {
  cat <<'END'
usage: ci/base_image.sh TAG

Builds a minimal Debian 12 with mmdebstrap from the machine's own apt sources and imports
it as TAG into the engine that DOCKER_HOST names. Root is needed.
END
}

# The image names Debian's public archive, not the machine's mirror.
public_sources() {
  cat <<'END'
Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
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
  [[ ${1:---help} == --help ]] && usage && exit 0
  local -r tag=$1
  scratch=$(mktemp --directory)
  trap 'rm --recursive --force "$scratch"' EXIT
  public_sources >"$scratch/debian.sources"
  # shellcheck disable=SC2016  # the hooks expand "$1" themselves: the root that is made
  # usrmerge is a Perl script that has done its work; an empty package takes its place.
  # mmdebstrap copies the machine's name and resolver into the root: they would be published.
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,usr-is-merged \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='chroot "$1" apt-get --quiet=2 --yes purge usrmerge perl-modules-5.36 libperl5.36 >/dev/null 2>&1' \
    --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/apt/sources.list; : >"$1"/etc/hostname' \
    --customize-hook='rm -rf "$1"/etc/apt/sources.list.d/* "$1"/var/log/* "$1"/var/lib/apt/lists/*' \
    --customize-hook="upload '$scratch/debian.sources' /etc/apt/sources.list.d/debian.sources" \
    bookworm "$scratch/root.tar" "$(machine_sources)"
  docker import --change 'CMD ["/bin/bash"]' "$scratch/root.tar" "$tag" >/dev/null
}

main "$@"
