# SPDX-License-Identifier: Apache-2.0
"""The Docker client and the ways in which a job is ended from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

NETWORK_SECONDS = 10
BEAT = 5  # [s] without a word


class Stopped(Exception):
    """The job was ended from outside; `code` is what the command returns."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(f"got {signal.Signals(number).name}", 128 + number)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals() -> None:
    """From here on Ctrl-C, SIGTERM and a lost terminal raise Stopped."""
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)


def ignore_signals() -> None:
    """For cleaning up, which is short and must be complete."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def engine_environment() -> dict[str, str]:
    """The environment of docker, with DOCKER_HOST set to an engine that answers (ci/engine)."""
    environment = dict(os.environ)
    finder = Path(__file__).resolve().parents[2] / "ci" / "engine"
    found = subprocess.run([str(finder), "env"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise SystemExit(f"docker/cluster: {found.stderr.strip() or 'no Docker engine answers'}")
    name, _, value = found.stdout.strip().partition("=")
    return environment | {name: value}


def ended(process: subprocess.Popen[str], what: str) -> tuple[str, str]:
    """Output of a command, at its end; says every few seconds that it is still waited for."""
    begin = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=BEAT)
        except subprocess.TimeoutExpired:
            took = time.monotonic() - begin
            print(f"docker/cluster: {what}: {took:.0f} s", file=sys.stderr, flush=True)


class Docker:
    """The docker client: the engine's own, /usr/bin/docker, before another one on PATH."""

    def __init__(self) -> None:
        debian = Path("/usr/bin/docker")
        self.program = str(debian) if debian.exists() else shutil.which("docker") or "docker"
        self.environment = engine_environment()

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [self.program, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            # Ctrl-C reaches this program alone, which then stops the containers in order.
            start_new_session=True,
            **options,
        )

    def call(self, *words: str, what: str = "") -> str:
        """Runs a command to its end and returns what it printed; a failed one ends the program."""
        process = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, error = ended(process, what or f"docker {words[0]}")
        except Stopped:
            process.wait()  # what it makes must be there before it is removed
            raise
        if process.returncode != 0:
            raise SystemExit(f"docker/cluster: docker {words[0]}: {(error or out).strip()}")
        return out.strip()

    def try_call(self, *words: str) -> bool:
        """True if the command succeeded; for questions, and for removing what may be gone."""
        process = self.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended(process, f"docker {words[0]}")
        return process.returncode == 0

    def remove_network(self, name: str) -> None:
        """Also right after its last container, whose end the engine may still be busy with."""
        deadline = time.monotonic() + NETWORK_SECONDS
        while self.try_call("network", "inspect", name) and time.monotonic() < deadline:
            if not self.try_call("network", "rm", name):
                time.sleep(0.2)

    def require_image(self, image: str) -> None:
        if not self.try_call("image", "inspect", image):
            raise SystemExit(f"docker/cluster: no image {image}; ci/image builds smp-train:dev")
