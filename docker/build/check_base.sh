#!/bin/sh
# check_base.sh: refuses a base image that the image's packages do not fit, and says what does.
# Plain sh: the first program that runs in a base which may lack everything else.
set -eu

# shellcheck disable=SC1091  # a file of the base image
found=$( (. /etc/os-release && echo "${ID:-unknown} ${VERSION_ID:-}") 2>/dev/null || echo unknown)
if [ "$found" = "debian 12" ] && [ -x /usr/bin/apt-get ]; then
  exit 0
fi
cat >&2 <<END
BASE_IMAGE is "$found"$([ -x /usr/bin/apt-get ] || echo ", without apt-get"); this Dockerfile needs Debian 12 (bookworm) with apt-get.
Why: docker/locks/*.txt name Debian 12's packages, and the locked wheels its Python 3.11 and glibc.
What to do: take debian:bookworm-slim (the default), another image made from it such as
python:3.11-slim-bookworm, or build yours FROM one of these; or keep the finished image as the
base and add what you need: FROM smp-train (examples/extend).
END
exit 1
