#!/usr/bin/env bash
# prune_os.sh: removes what the packages of Debian and of the base bring and no job uses. Runs in the
# layer that installed them; copyright files stay.
set -euo pipefail

main() {
  # Link-time optimisation and sanitizers: torch.compile uses neither.
  rm --force /usr/bin/*-lto-dump-* /usr/lib/gcc/*/*/lto1
  rm --force /usr/lib/gcc/*/*/lib{asan,hwasan,lsan,tsan,ubsan}.a /usr/lib/*/lib{asan,lsan,tsan,ubsan}.so.*
  # Static Python: extensions link none.
  rm --force /usr/lib/python3.11/config-*/libpython3.11*.a
  # Test suite, editor and graphics of Debian's Python.
  rm --recursive --force /usr/lib/python3.11/{test,idlelib,lib2to3/tests,turtledemo}
  # Nobody changes users in a container: programs with another user's or group's rights would serve
  # an intruder alone.
  find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
  find /usr/share/doc -type f ! -name copyright -delete
  find /usr/share/man /usr/share/locale /usr/share/info -mindepth 1 -delete 2>/dev/null || true
}

main "$@"
