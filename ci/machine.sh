# What the scripts in ci/ need to know about the machine; sourced, never run.
# shellcheck shell=bash
#
# All that is said here goes to stderr: a script's stdout holds its results alone.

readonly beat=5  # [s] a step may be silent

say() { echo "$*" >&2; }

# Ends the script with one sentence.
die() {
  say "ci/${0##*/}: $*"
  exit 1
}

# --- before anything is changed ---------------------------------------------------------------

# Ends the script unless the locked packages fit: Debian 12 on x86_64.
require_debian_12() {
  local -r release=${SMP_OS_RELEASE:-/etc/os-release} processor=$(uname --machine)
  local id="" version=""
  if [[ -r $release ]]; then
    # shellcheck disable=SC1090  # a file of the machine
    read -r id version < <(. "$release" && echo "${ID:-} ${VERSION_ID:-}")
  fi
  [[ $id == debian && $version == 12 ]] ||
    die "this is ${id:-an unknown system} ${version:-without a version}, not Debian 12, whose packages are" \
      "locked; with a Docker engine do it in a container: docker run --rm -it --volume" \
      "\"\$PWD:/src\" --workdir /src debian:bookworm ci/${0##*/}"
  [[ $processor == x86_64 ]] ||
    die "this machine is $processor, and the locked wheels are made for x86_64; use such a machine"
}

# Ends the script unless this user may run commands as root; may ask for a password.
require_root() {
  [[ $(id --user) != 0 ]] || return 0
  type -P sudo >/dev/null || die "root is needed to $1; run it as root or install sudo"
  sudo --non-interactive true 2>/dev/null && return
  # Where nobody can be asked, sudo would fail in the middle of things.
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
}

# --- steps that take a while ------------------------------------------------------------------

# quietly WHAT FOLDER COMMAND...: its output is shown only when it fails. Every few seconds a line
# says how long it takes, how large the folder is ("" for none) and what it said last.
quietly() {
  local -r what=$1 folder=$2
  local log status=0
  shift 2
  log=$(mktemp)
  "$@" 2>&1 </dev/null | tee --ignore-interrupts "$log" | beats hide "$what" "$folder" || status=$?
  ((status == 0)) || { say "$what: failed"; tail --lines=20 "$log" >&2; }
  rm "$log"
  return "$status"
}

# aloud WHAT COMMAND...: its output goes to stderr, with a line whenever it is silent for long.
aloud() {
  local -r what=$1
  shift
  "$@" 2>&1 </dev/null | beats show "$what" ""
}

# beats show|hide WHAT FOLDER: reads the output of a step.
beats() {
  local -r mode=$1 what=$2 folder=$3 begin=$SECONDS
  local next=$((SECONDS + beat)) line="" part="" last="" status
  trap "" INT  # it ends when the step does
  while true; do
    status=0
    IFS= read -r -t 1 part || status=$?
    line+=$part
    if ((status == 0)); then
      last=$line line=""
      [[ $mode == hide ]] || { say "$last" && next=$((SECONDS + beat)); }
    elif ((status <= 128)); then  # the end, not a timeout
      [[ $mode == hide || -z $line ]] || say "$line"
      return
    fi
    ((SECONDS < next)) && continue
    say "  $what: $((SECONDS - begin)) s$(size_of "$folder")${last:+, ${last:0:70}}"
    next=$((SECONDS + beat))
  done
}

size_of() {
  [[ ! -d $1 ]] || echo ", $(du --summarize --block-size=1MB "$1" 2>/dev/null | cut --fields=1) MB"
}

# --- packages -----------------------------------------------------------------------------------

# Runs a command as root: as it is, or through sudo, which would drop the proxies.
as_root() {
  local -r proxies=(http_proxy https_proxy no_proxy)
  local name kept=()
  if [[ $(id --user) == 0 ]]; then
    "$@"
    return
  fi
  for name in "${proxies[@]}"; do
    [[ -z ${!name:-} ]] || kept+=("$name=${!name}")
  done
  sudo -- env "${kept[@]}" "$@"
}

# apt_install NAME...: installs the Debian packages that are not there yet.
apt_install() {
  local missing=() noun=packages
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  require_root "install the Debian packages ${missing[*]}"
  require_mirror
  quietly "apt-get update" "" as_root apt-get --quiet update
  # What another run left half done.
  [[ -z $(dpkg --audit) ]] || quietly "dpkg --configure" "" as_root dpkg --configure --pending || true
  ((${#missing[@]} > 1)) || noun=package
  say "installing ${#missing[@]} Debian $noun ($(apt_cost "${missing[@]}")): ${missing[*]}"
  # dpkg would wait for the disk after each of 20,000 files; to wait once, at the end, takes a third.
  quietly "Debian packages" "" as_root env DEBIAN_FRONTEND=noninteractive apt-get \
    --quiet --yes -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    -o Dpkg::Options::=--force-unsafe-io install --fix-broken --no-install-recommends "${missing[@]}"
  quietly "writing Debian packages to disk" "" sync --file-system /usr
}

# What apt would download and write, in its own words.
apt_cost() {
  LC_ALL=C apt-get --assume-no -o Debug::NoLocking=1 install --no-install-recommends "$@" 2>&1 |
    sed --quiet 's/^Need to get \(.*\) of archives.$/\1 to download/p
      s/^After this operation, \(.*\) of additional disk space will be used.$/, \1 of disk/p' |
    tr --delete '\n'
}

# debian_list NAME...: what docker/locks/debian-NAME.txt list, one package a line.
debian_list() {
  local name files=()
  for name in "$@"; do files+=("docker/locks/debian-$name.txt"); done
  sed --regexp-extended '/^(#|$)/d' "${files[@]}" | sort --unique
}

missing_packages() {
  # shellcheck disable=SC2016  # dpkg-query expands its own format
  comm -13 \
    <(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
      sed --quiet 's/ installed$//p' | sort --unique) \
    <(printf '%s\n' "$@" | sort --unique)
}

# --- engines --------------------------------------------------------------------------------------

# Debian's client belongs to Debian's engine; another one on PATH may lack BuildKit.
docker() { "$(type -P /usr/bin/docker || type -P docker)" "$@"; }
