# Checks that end a script before it has changed anything, with one sentence; for machine.sh.
# shellcheck shell=bash

# [MB] of disk that what the scripts install and build takes while they do, from nothing; packages,
# .venv and build are the README's 10 GB.
# shellcheck disable=SC2034  # the scripts that source this use them
readonly packages_mb=1100 venv_mb=7000 tests_mb=600 images_mb=500 slurm_mb=30 browser_mb=600
readonly build_mb=1500 rebuild_mb=200

# Name and version of the machine's distribution, such as "debian 12".
distribution() {
  local -r release=${SMP_OS_RELEASE:-/etc/os-release}
  # shellcheck disable=SC1090  # a file of the machine
  [[ ! -r $release ]] || source "$release"
  echo "${ID:-an unknown system} ${VERSION_ID:-without a version}"
}

# Ends the script unless the packages' names are known and the locked wheels fit: Debian 12 or 13 on
# x86_64.
require_debian() {
  local system processor
  system=$(distribution) processor=$(uname --machine)
  [[ $system == "debian 12" || $system == "debian 13" ]] ||
    die "this is $system, not Debian 12 or 13, whose packages are listed; with a Docker engine do it in a container:" \
      "docker run -it --name smp-train --volume \"\$PWD:/src\" --workdir /src debian:bookworm, and there ci/${0##*/}"
  [[ $processor == x86_64 ]] ||
    die "this machine is $processor, and the locked wheels are made for x86_64; use such a machine"
}

# Ends the script unless this user may run commands as root; may ask for a password.
require_root() {
  [[ $(id --user) != 0 ]] || return 0
  type -P sudo >/dev/null || die "root is needed to $1; run it as root or install sudo"
  sudo --non-interactive true 2>/dev/null && return
  # Without a terminal nobody can be asked, and sudo would fail in the middle of things.
  (: </dev/tty) 2>/dev/null && sudo --validate && return
  die "root is needed to $1, and sudo does not let $(id --user --name) be it; run it as root"
}

# require_space WHAT FOLDER MB [FOLDER MB]...: ends the script unless the file systems where the
# folders are, or will be, have so much free; folders that share one are added up.
require_space() {
  local -r what=$1
  local folder free place
  local -A share=()
  shift
  while (($# > 0)); do
    folder=$1
    until [[ -d $folder ]]; do folder=$(dirname "$folder"); done
    place=$(df --output=target "$folder" | tail --lines=1)
    share[$place]=$((${share[$place]:-0} + $2))
    shift 2
  done
  for place in "${!share[@]}"; do
    free=$(df --output=avail --block-size=MB "$place" | tail --lines=1 | tr --delete --complement 0-9)
    ((free >= share[$place])) ||
      die "$free MB are free in the file system $place, and $what takes ${share[$place]};" \
        "free the difference or move what lies there to a larger disk"
  done
}

# Size of what ci/setup and ci/build would write into the repository [MB].
missing_mb() {
  local sum=$rebuild_mb
  [[ -f .venv/locks.sha256 ]] || sum=$((sum + venv_mb))
  [[ -x .venv/bin/train ]] || sum=$((sum + build_mb))
  echo "$sum"
}

# The folder where the engine that answers, or that ci/engine would start, keeps its data.
engine_folder() {
  local folder=""
  folder=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null) || true
  [[ -d $folder ]] || folder=${SMP_ENGINE_ROOT:-/var/lib/smp-engine}
  echo "$folder"
}

# require_writable FOLDER: ends the script unless this user can write there.
require_writable() {
  [[ -w $1 ]] ||
    die "$(id --user --name) cannot write to $1; give that user the folder (chown) or clone it anew"
}

# Ends the script unless Debian's mirror answers: has apt, with its own proxy and certificates,
# fetch one small file.
require_mirror() {
  local addresses=() scratch reason
  [[ -z ${mirror_answered:-} ]] || return 0
  # shellcheck disable=SC2016  # apt expands its own format
  mapfile -t addresses < <(apt-get indextargets --no-release-info \
    --format '$(REPO_URI)dists/$(RELEASE)/InRelease')
  ((${#addresses[@]} > 0)) ||
    die "apt knows no source of packages; name a mirror of Debian 12 in /etc/apt/sources.list"
  scratch=$(mktemp --directory)
  reason=$(timeout 20 /usr/lib/apt/apt-helper -o Acquire::Retries=0 -o Acquire::http::Timeout=10 \
    -o Acquire::https::Timeout=10 download-file "${addresses[0]}" "$scratch/release" 2>&1) &&
    reason="" || reason=${reason:-no answer within 20 s}
  rm --recursive --force "$scratch"
  [[ -z $reason ]] ||
    die "Debian's mirror cannot be reached ($(sed --quiet 's/^ \+//p' <<<"$reason" | head --lines=1));" \
      "check the network, or name another mirror or a proxy in /etc/apt"
  mirror_answered=1
}

# Ends the script unless the index of Python packages answers: has pip, with its own configuration,
# proxy and certificates, look up a small one of the locks. A machine that has no pip yet is not
# asked: Debian's packages bring one.
require_index() {
  local pip=() said reason
  [[ -z ${index_answered:-} ]] || return 0
  mapfile -t pip < <(pip_words)
  ((${#pip[@]} > 0)) || return 0
  # The network has 10 s; pip itself takes long to start on a busy machine.
  if said=$(timeout 30 "${pip[@]}" index versions -vv --disable-pip-version-check --no-cache-dir \
    --no-input --retries 0 --timeout 10 filelock 2>&1); then
    index_answered=1
    return
  fi
  reason=$(sed --quiet "s/^Could not fetch URL \([^ ]*\) .*: \([^:]*\) - skipping$/\1 \2/p" <<<"$said" |
    head --lines=1 | tr --delete "')")
  die "the index of Python packages cannot be reached (${reason:-no answer within 30 s}); check the" \
    "network, or name another index or a proxy in pip's configuration"
}

# The words that run pip, one a line: the environment's, or the wheel that Debian keeps for new ones.
pip_words() {
  if [[ -x .venv/bin/pip ]]; then
    printf '%s\n' .venv/bin/python -m pip
  elif compgen -G '/usr/share/python-wheels/pip-*.whl' >/dev/null; then
    printf '%s\n' /usr/bin/python3 "$(compgen -G '/usr/share/python-wheels/pip-*.whl')/pip"
  fi
}
