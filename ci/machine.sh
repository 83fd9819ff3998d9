# Facts about the machine for the scripts in ci/; sourced, never run.
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

# shellcheck source=ci/requirements.sh
source "$(dirname "${BASH_SOURCE[0]}")/requirements.sh"

# Lets git read a clone of another user, as one is that was mounted into a container.
trust_clone() {
  local -r number=${GIT_CONFIG_COUNT:-0}
  export GIT_CONFIG_COUNT=$((number + 1)) "GIT_CONFIG_KEY_$number=safe.directory" "GIT_CONFIG_VALUE_$number=$PWD"
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

# require_packages NAME...: ends the script unless those that are missing can be installed.
require_packages() {
  local missing=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  require_root "install the Debian packages ${missing[*]}"
  require_mirror
}

# apt_install NAME...: installs the Debian packages that are not there yet.
apt_install() {
  local missing=() noun=packages
  require_packages "$@"
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} > 0)) || return 0
  # apt waits for the lock of packages, but not for that of the lists, which another script may hold.
  quietly "apt-get update" "" as_root flock /var/lib/dpkg apt-get --quiet update
  # Finishes work that another run left half done.
  [[ -z $(dpkg --audit) ]] || quietly "dpkg --configure" "" as_root dpkg --configure --pending || true
  ((${#missing[@]} > 1)) || noun=package
  say "installing ${#missing[@]} Debian $noun ($(apt_cost "${missing[@]}")): ${missing[*]}"
  # dpkg would wait for the disk after each of 20,000 files; to wait once, at the end, takes a third.
  quietly "Debian packages" "" as_root env DEBIAN_FRONTEND=noninteractive apt-get \
    --quiet --yes -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    -o Dpkg::Options::=--force-unsafe-io install --fix-broken --no-install-recommends "${missing[@]}"
  quietly "writing Debian packages to disk" "" sync --file-system /usr
}

# Installs Debian's interpreter, for what runs before ci/setup has installed everything.
require_python() { [[ -x /usr/bin/python3 ]] || apt_install python3; }

# Size of apt's downloads and of what it would write, in its own words.
apt_cost() {
  LC_ALL=C apt-get --assume-no -o Debug::NoLocking=1 install --no-install-recommends "$@" 2>&1 |
    sed --quiet 's/^Need to get \(.*\) of archives.$/\1 to download/p
      s/^After this operation, \(.*\) of additional disk space will be used.$/, \1 of disk/p' |
    tr --delete '\n'
}

# debian_list NAME...: what docker/locks/debian-NAME.txt list, one package a line, by the names of the
# Debian that this machine is.
debian_list() {
  local name files=() renamed=()
  for name in "$@"; do files+=("docker/locks/debian-$name.txt"); done
  [[ $(distribution) != "debian 13" ]] ||
    renamed=(--expression='s/^python3\.11/python3/; s/1\.81/1.83/; s/^lib(archive13|curl4)$/\0t64/')
  sed --regexp-extended --expression='/^(#|$)/d' "${renamed[@]}" "${files[@]}" | sort --unique
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
