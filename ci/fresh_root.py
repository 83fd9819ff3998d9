# SPDX-License-Identifier: Apache-2.0
"""A bare Debian for ci/fresh: its root file system, and watching what runs in it."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path

import build_secrets

ROOT = Path(__file__).resolve().parent.parent
FRESH = ROOT / "build" / "fresh"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
LOCAL_CERTIFICATES = Path("/usr/local/share/ca-certificates")
BEAT = 5  # [s] this script may be silent
SOURCE = "home/someone/smp-train"  # the clone, in the root
# What the machine must have before the first command: the README says root, or sudo.
DEMANDED = {"root": [], "user": ["sudo"]}
RELEASES = {"12": "bookworm", "13": "trixie"}

Command = list[str | Path]


class Unusable(Exception):
    """The machine cannot do this; the text says what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def watched(
    command: Command, what: str, log: Path, environment: dict[str, str]
) -> tuple[int, float]:
    """Exit code and longest silence [s] of a command; shows from time to time what it said last."""
    silence, last, begin = 0.0, "", time.monotonic()
    heard = shown = begin
    with (
        log.open("wb") as messages,
        log.with_suffix(".out").open("wb") as results,
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running,
        selectors.DefaultSelector() as pipes,
    ):
        assert running.stdout is not None
        assert running.stderr is not None
        pipes.register(running.stdout, selectors.EVENT_READ, results)
        pipes.register(running.stderr, selectors.EVENT_READ, messages)
        while pipes.get_map():
            for key, _ in pipes.select(timeout=1):
                text = os.read(key.fd, 1 << 16)
                if not text:
                    pipes.unregister(key.fileobj)
                    continue
                key.data.write(text)
                key.data.flush()
                silence, heard = max(silence, time.monotonic() - heard), time.monotonic()
                last = (text.decode(errors="replace").strip().splitlines() or [last])[-1]
            if time.monotonic() - shown > BEAT:
                shown = time.monotonic()
                say(f"  {what}: {shown - begin:.0f} s, {last[:80].strip()}")
        # A daemon that kept the pipes open would be waited for above: none may.
        return running.wait(), max(silence, time.monotonic() - heard)


def sources(release: str) -> Path:
    """The machine's own sources that are Debian's, for another release with that one's name."""
    for name in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"):
        own = Path(name)
        if own.is_file() and own.stat().st_size:
            FRESH.mkdir(parents=True, exist_ok=True)
            named = FRESH / f"{release}{own.suffix}"
            named.write_text(re.sub("|".join(RELEASES.values()), release, own.read_text()))
            return named
    raise Unusable("apt knows no Debian; name a mirror in /etc/apt/sources.list.d/debian.sources")


def make_root(root: Path, who: str, debian: str) -> None:
    release = RELEASES[debian]
    include = [f"--include={','.join(DEMANDED[who])}"] if DEMANDED[who] else []
    command: Command = [
        "mmdebstrap",
        "--variant=minbase",
        *include,
        release,
        root,
        sources(release),
    ]
    watched(command, f"a bare root for {who}", FRESH / f"{who}-root.log", dict(os.environ))
    if not (root / "usr/bin/apt-get").exists():
        raise Unusable(f"mmdebstrap made no root; {FRESH}/{who}-root.log says why")
    configure(root)
    home = root / SOURCE
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, home)
    if who == "user":
        run("chroot", root, "useradd", "--uid=1000", "--no-create-home", "someone")
        run("chroot", root, "chown", "--recursive", "someone:", "/home/someone")
        (root / "etc/sudoers.d/someone").write_text("someone ALL=(ALL) NOPASSWD: ALL\n")


def configure(root: Path) -> None:
    """The machine's way to Debian's and Python's packages, less what names its own folders."""
    (root / "etc/pip.conf").write_text(
        build_secrets.pip_conf(build_secrets.pip_settings(dict(os.environ)))
        + f"cert = {CA_BUNDLE}\n"
    )
    for made in (root / "etc/apt/sources.list.d").glob("0000*.sources"):
        made.rename(made.with_name("debian.sources"))  # as Debian's own images name it
    (root / "etc/apt/apt.conf.d/90machine").write_text(build_secrets.apt_conf())
    for folder in ("etc/apt/auth.conf.d", "etc/apt/keyrings"):
        if Path("/", folder).is_dir():
            shutil.copytree(Path("/", folder), root / folder, dirs_exist_ok=True)
    if CA_BUNDLE.is_file():
        (root / CA_BUNDLE.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CA_BUNDLE, root / CA_BUNDLE.relative_to("/"))
    if LOCAL_CERTIFICATES.is_dir():
        target = root / LOCAL_CERTIFICATES.relative_to("/")
        shutil.copytree(LOCAL_CERTIFICATES, target, dirs_exist_ok=True)
    for name in ("etc/resolv.conf", "etc/hosts"):
        shutil.copy(Path("/", name), root / name)


def mount(root: Path) -> None:
    """In this namespace alone. The root is a mount itself, or runc could not leave it."""
    run("mount", "--bind", root, root)
    run("mount", "--types", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/sys", root / "sys")
    run("mount", "--rbind", "/dev", root / "dev")
    for folder in ("dev/shm", "run"):
        run("mount", "--types", "tmpfs", "tmpfs", root / folder)


def remove(root: Path) -> None:
    run("rm", "--recursive", "--force", "--one-file-system", root)
