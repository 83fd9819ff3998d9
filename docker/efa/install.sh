#!/usr/bin/env bash
# install.sh SOURCE SHA256 OUT: lays EFA's libfabric and its NCCL plugin under OUT.
#
# SOURCE: 0 for an image without EFA (OUT stays empty), 1 for aws-efa-installer.tar.gz beside
# this file or else its line in docker/locks/artifacts.lock, or a URL. The sum is required, as an
# argument or in the lock, and checked before anything is unpacked.
set -euo pipefail

readonly here=${0%/*}

fail() {
  echo "efa: $*" >&2
  exit 1
}

# Prints sum and address of the installer in artifacts.lock, when it has them.
locked() {
  sed --quiet 's/^aws-efa-installer //p' "${LOCK:-/build/artifacts.lock}"
}

fetch() {
  local -r address=$1 target=$2
  [[ ! -s /run/secrets/ca_bundle ]] || export SSL_CERT_FILE=/run/secrets/ca_bundle
  python3.11 -c 'import sys, urllib.request as r; r.urlretrieve(*sys.argv[1:])' "$address" "$target" ||
    fail "cannot fetch the installer from $address"
}

# Sets archive and sum.
obtain() {
  local -r source=$1 scratch=$2 local_file=$here/aws-efa-installer.tar.gz
  local address=$source locked_sum=""
  case $source in
    1)
      if [[ -s $local_file ]]; then
        archive=$local_file
        return
      fi
      read -r locked_sum address < <(locked) ||
        fail "EFA_INSTALLER=1, but docker/efa/aws-efa-installer.tar.gz is not there, nor a line in docker/locks/artifacts.lock; put AWS's installer there or give its URL"
      sum=${sum:-$locked_sum}
      ;;
    https://* | http://* | file://*) ;;
    *) fail "EFA_INSTALLER=$source is neither 0, 1 nor a URL" ;;
  esac
  archive=$scratch/installer.tar.gz
  fetch "$address" "$archive"
}

verify() {
  local -r archive=$1 wanted=$2
  local found
  [[ $wanted =~ ^[0-9a-f]{64}$ ]] || fail "EFA_SHA256 has to be the 64 hexadecimal digits of the installer's SHA-256; it is \"$wanted\""
  found=$(sha256sum "$archive" | cut --delimiter=' ' --fields=1)
  [[ $found == "$wanted" ]] || fail "the installer's SHA-256 is $found, EFA_SHA256 says $wanted; nothing was unpacked"
}

# Moves the prefixes, and beside libfabric the RDMA libraries that the installer brought. Two
# versions of libibverbs must not meet in one process: the loader looks into this folder first,
# whoever asks (root_layout.sh has it read the line). A RUNPATH would count for one library only.
collect() {
  local -r out=$1
  local library
  mkdir --parents "$out/opt/amazon"
  cp --archive /opt/amazon/efa /opt/amazon/ofi-nccl "$out/opt/amazon/"
  rm --recursive --force "$out"/opt/amazon/*/share/{doc,man}
  for library in libefa libibverbs librdmacm; do
    # By the time of the change: dpkg gives a file the time that it has in its package.
    find /usr/lib -name "$library.so.*" -cnewer "$out/.start" \
      -exec cp --archive --target-directory="$out/opt/amazon/efa/lib" {} +
  done
  mkdir --parents "$out/etc/ld.so.conf.d"
  echo /opt/amazon/efa/lib >"$out/etc/ld.so.conf.d/000_efa.conf"
}

main() {
  local -r source=$1 out=$3
  local sum=$2 archive="" scratch member
  mkdir --parents "$out"
  [[ $source != 0 ]] || return 0
  # Early, for the clock of file times has steps of some milliseconds.
  touch "$out/.start"
  scratch=$(mktemp --directory)
  obtain "$source" "$scratch"
  verify "$archive" "$sum"
  tar --extract --gzip --file "$archive" --directory "$scratch" || fail "the installer is no gzipped tar archive"
  member=$scratch/aws-efa-installer/efa_installer.sh
  [[ -x $member ]] || fail "the archive has no aws-efa-installer/efa_installer.sh"
  # No kernel module and no limits: both are the host's. No test of a device: a build has none.
  (cd "${member%/*}" && ./efa_installer.sh --yes --skip-kmod --skip-limit-conf --no-verify) ||
    fail "AWS's installer failed"
  for member in /opt/amazon/efa/lib/libfabric.so.1 /opt/amazon/ofi-nccl/lib; do
    [[ -e $member ]] || fail "AWS's installer left no $member"
  done
  collect "$out"
  # For the list of components.
  echo "$sum" >"$out/opt/amazon/efa/installer.sha256"
  rm --recursive --force "$out/.start" "$scratch"
}

main "$@"
