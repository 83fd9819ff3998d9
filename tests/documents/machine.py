# SPDX-License-Identifier: Apache-2.0
"""A machine that lacks everything, as the scripts of ci/ see it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT

# A program that notes how it was called; what it does then comes after.
NOTED = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\n'
DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
# The engine of a machine where none runs: what answers at Docker's usual place is not ours to stop.
FAKE_ENGINE = """\
#!/usr/bin/python3
import http.server, os, socketserver, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = b'{"Version": "20.10", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}'
        self.send_response(200)
        for name in (("Api-Version", "1.41"), ("Content-Length", str(len(text)))):
            self.send_header(*name)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)
    do_HEAD = do_GET
    def log_message(self, *words): pass
    def address_string(self): return "client"
open(options["--pidfile"], "w").write(str(os.getpid()))
socketserver.UnixStreamServer(options["--host"].removeprefix("unix://"), Handler).serve_forever()
"""


class Machine:
    """A clone of the scripts and locks, and programs of its own first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "clone"
        self.calls = folder / "calls"
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.calls.write_text("")
        for name in ("ci", "docker/locks", "docker/vendor"):
            shutil.copytree(
                ROOT / name,
                self.clone / name,
                ignore=shutil.ignore_patterns("__pycache__", "*.whl"),
            )
        (folder / "os-release").write_text(DEBIAN)
        self.environment = {
            "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "CALLS": str(self.calls),
            "SMP_OS_RELEASE": str(folder / "os-release"),
            "SMP_ENGINE_ROOT": str(folder / "engine"),
            "SMP_ENGINE_RUN": str(folder / "run"),
            "APT_CONFIG": str(folder / "apt.conf"),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": "http://127.0.0.1:9/",  # nothing listens there
        }
        # The test runs as root, whoever runs it, on a machine that lacks every package.
        self.program("id", 'if [[ $* == --user ]]; then echo 0; else exec /usr/bin/id "$@"; fi')
        self.program("dpkg-query", "exit 1")
        self.program("dpkg", "exit 0")
        self.program("sudo", "exit 1")
        self.program("mmdebstrap", "exit 1")
        # Room on its disk, whatever the machine of the test has.
        self.program("df", '[[ $1 == --output=avail ]] && echo 99999 || exec /usr/bin/df "$@"')
        self.program("apt-get", '[[ $1 != indextargets ]] || exec /usr/bin/apt-get "$@"')
        self.mirror("http://127.0.0.1:9/")

    def program(self, name: str, does: str) -> None:
        path = self.programs / name
        path.write_text(does if does.startswith("#!") else f"{NOTED}{does}\n")
        path.chmod(0o755)

    def mirror(self, address: str) -> None:
        sources = self.folder / "sources.list"
        sources.write_text(f"deb {address} bookworm main\n")
        (self.folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "/dev/null";\n'
            'Acquire::http::Proxy "DIRECT";\n'
        )

    def run(self, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """From another folder, with nobody to ask for a password."""
        command = [*prefix, str(self.clone / words[0]), *words[1:]]
        return subprocess.run(
            command,
            cwd="/",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            start_new_session=True,
        )

    def holds(self, name: str) -> None:
        """Makes a file that an earlier command would have left in the clone."""
        path = self.clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def state(self) -> dict[str, int]:
        """All files but the notes of calls, with the time of their last change."""
        left_out = {self.calls, self.folder}
        paths = [path for path in self.folder.rglob("*") if path not in left_out]
        return {str(path): path.lstat().st_mtime_ns for path in paths}

    def changing_calls(self) -> list[str]:
        """Calls of programs that could change the machine."""
        harmless = ("df ", "id ", "dpkg-query ", "uname ", "sudo --non-interactive true")
        lines = self.calls.read_text().splitlines()
        return [
            line
            for line in lines
            if not line.startswith(harmless) and not line.startswith("apt-get indextargets")
        ]

    def refuses(self, *words: str, prefix: tuple[str, ...] = ()) -> str:
        """The one sentence that says why, after which nothing has changed."""
        before = self.state()

        ended = self.run(*words, prefix=prefix)

        assert ended.returncode == 1, ended.stderr
        assert ended.stdout == ""
        assert ended.stderr.startswith(f"{words[0]}: "), ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr
        assert self.changing_calls() == []
        assert self.state() == before
        return ended.stderr


def in_namespace(*lines: str) -> tuple[str, ...]:
    """Words before a command that runs after these lines, where their mounts are its own."""
    words = ("unshare", "--user", "--map-root-user", "--mount", "bash", "-ec")
    prefix = (*words, f'{"; ".join(lines)}; exec "$@"', "bash")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount in a namespace of its own")
    return prefix


def read_only(folder: Path) -> tuple[str, ...]:
    """A prefix for a command that cannot write there, though root may everywhere else."""
    return in_namespace(f"mount --bind {folder} {folder}", f"mount -o remount,bind,ro {folder}")
