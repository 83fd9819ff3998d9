# SPDX-License-Identifier: Apache-2.0
"""Benches between hosts: network namespaces whose interfaces are, unless a layout says otherwise,
slow enough that the wire, not the processors of this machine, is the limit."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark import ROOT

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "mpi"))
from launching import peers_python

from tests.host_network import lacks
from tests.mpi.net_hosts import NetHosts

RATE_MBIT = 100
BYTES_PER_SECOND = RATE_MBIT * 1e6 / 8
#: Bytes on the wire for a byte of data: an Ethernet frame of 1,514 bytes holds 1,448, behind the
#: headers of Ethernet, IP and TCP with timestamps.
FRAMING = 1514 / 1448
#: Ranks of several hosts prove themselves, as those that `train` starts do.
SECRET = {"SMP_JOB_SECRET": "a text that nobody has to guess, for a bench"}


@dataclass(frozen=True)
class Layout:
    hosts: int
    ranks_each: int
    credit_kb: int = NetHosts.credit_kb
    rate_mbit: int = RATE_MBIT  # 0: what this machine can do

    @property
    def text(self) -> str:
        return f"{self.hosts} hosts x {self.ranks_each}"

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_each

    @property
    def share_between_hosts(self) -> float:
        """(N-1)/N: what of the data a host must send at least."""
        return (self.hosts - 1) / self.hosts

    @property
    def byte_limit(self) -> float:
        """Factor by which a host sends less than in a ring of all ranks."""
        return (self.ranks - 1) / self.ranks / self.share_between_hosts


def run_on(layout: Layout, command: list[str], python: Path | None = None, **variables: str) -> str:
    """Output of rank 0; by the interpreter `python`, or that of the development environment."""
    if problem := lacks():
        raise SystemExit(f"ci/bench: hosts of namespaces: {problem}")
    with NetHosts(layout.hosts, rate_mbit=layout.rate_mbit, credit_kb=layout.credit_kb) as hosts:
        outcomes = hosts.run(
            [str(python or ROOT / ".venv/bin/python"), *command],
            layout.ranks_each,
            limit=600,
            PYTHONPATH=str(ROOT / "build" / "release" / "python"),
            SMP_PROGRESS="off",
            DS_ACCELERATOR="cpu",
            **{**SECRET, **variables},
        )
    if any(code != 0 for code, _ in outcomes):
        raise SystemExit(f"ci/bench: {command} failed: {outcomes}")
    return outcomes[0][1]


def run_job(
    layout: Layout, job: str, *arguments: object, peers: bool = False, **variables: str
) -> Any:
    """Value that the first rank of tests/bench/jobs/`job` prints behind "RESULT ", as JSON."""
    words = [str(ROOT / "tests/bench/jobs" / job), *map(str, arguments)]
    output = run_on(layout, words, peers_python() if peers else None, **variables)
    return json.loads(output.split("RESULT ")[1].splitlines()[0])


def measure(layout: Layout, operation: str, begin: int, end: int) -> dict[int, dict[str, float]]:
    """Seconds by bytes and backend, sizes four times as large each, by the product's own bench."""
    output = run_on(
        layout,
        ["-m", "smdistributed.dataparallel.bench", operation, "--json",
         "--backends", "smddp,gloo", "--begin", str(begin), "--end", str(end)],
    )  # fmt: skip
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {row["bytes"]: row["seconds"] for row in rows}
