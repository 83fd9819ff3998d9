# SPDX-License-Identifier: Apache-2.0
"""Ranks that stay warm between tests: importing torch costs seconds, a job on a warm pool none.

`RankPool(4)` starts `mpirun -np 4` once. `run("module:function", config, …)` has every rank call
`smp.init(config)`, the function of tests/mpi/jobs/module.py, and `smp.shutdown()`.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
START_SECONDS = 300
JOB_SECONDS = 180


@dataclass
class Outcome:
    """Outcome of a job on one rank: its result, or the traceback of its error."""

    result: Any = None
    error: str = ""


class RankPool:
    def __init__(
        self, size: int, environment: dict[str, str] | None = None, python: str | None = None
    ) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory()
        listener = Listener(f"{self._folder.name}/socket", "AF_UNIX", backlog=size)
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        command += [
            "-np",
            str(size),
            python or os.environ.get("WARM_PYTHON", sys.executable),
            str(HERE / "rank_worker.py"),
            listener.address,
        ]
        own = {"OMP_NUM_THREADS": "1", "SMP_TIMEOUT_SECONDS": str(JOB_SECONDS / 2)}
        self._log = open(f"{self._folder.name}/log", "w+")  # noqa: SIM115 - closed in close()
        self._mpirun = subprocess.Popen(
            command,
            env={**os.environ, **own, **(environment or {})},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._ranks: dict[int, Connection] = {}
        try:
            self._await_ranks(listener)
        except BaseException:
            self.close()
            raise
        finally:
            listener.close()

    def _await_ranks(self, listener: Listener) -> None:
        listener._listener._socket.settimeout(1)  # accept() itself takes no deadline
        deadline = time.monotonic() + START_SECONDS
        while len(self._ranks) < self.size:
            if self._mpirun.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{len(self._ranks)} of {self.size} ranks came: {self.log_text()}"
                )
            try:
                connection = listener.accept()
            except TimeoutError:
                continue
            self._ranks[connection.recv()] = connection

    def run(
        self, job: str, config: dict[str, Any], *args: Any, fails: bool = False, **kwargs: Any
    ) -> list[Any]:
        """Results by rank; with `fails`, the tracebacks by rank, of which none may be missing."""
        for rank in range(self.size):
            self._ranks[rank].send((job, config, args, kwargs))
        outcomes = [self._outcome(rank) for rank in range(self.size)]
        if fails:
            assert all(o.error for o in outcomes), f"not all ranks failed: {outcomes}"
            return [outcome.error for outcome in outcomes]
        errors = [f"rank {rank}:\n{o.error}" for rank, o in enumerate(outcomes) if o.error]
        assert not errors, "\n".join(errors)
        return [outcome.result for outcome in outcomes]

    def start(self, job: str, config: dict[str, Any], *args: Any) -> None:
        """Like run(), without waiting; for jobs that end in the death of a rank."""
        for rank in range(self.size):
            self._ranks[rank].send((job, config, args, {}))

    def outcome(self, rank: int) -> Outcome:
        return self._outcome(rank)

    def _outcome(self, rank: int) -> Outcome:
        connection = self._ranks[rank]
        if not connection.poll(JOB_SECONDS):
            raise RuntimeError(f"rank {rank} gave no answer in {JOB_SECONDS} s: {self.log_text()}")
        try:
            return Outcome(*pickle.loads(connection.recv_bytes()))
        except EOFError:
            return Outcome(error=f"rank {rank} died: {self.log_text()}")

    def log_text(self, last: int | None = 4000) -> str:
        """The end of what all jobs of the pool have said; None for all of it."""
        self._log.flush()
        return Path(self._log.name).read_text(errors="replace")[-(last or 0) :]

    def dismiss(self) -> None:
        """Lets the ranks end; close() waits for it."""
        for connection in self._ranks.values():
            connection.close()

    def close(self) -> None:
        self.dismiss()
        try:
            self._mpirun.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._mpirun.pid, signal.SIGKILL)
            self._mpirun.wait(10)
        self._log.close()
        self._folder.cleanup()
