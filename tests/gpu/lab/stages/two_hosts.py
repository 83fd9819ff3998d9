# SPDX-License-Identifier: Apache-2.0
"""NCCL between two ranks on one card, which it refuses within a host; beside it, the memory of the
host, where such ranks' tensors go otherwise.

For NCCL each rank runs under another name of its host and in a space of process numbers of its own,
which is a host of its own for the library. So tensors of the card go through NCCL's network code,
and the library takes the routes that it takes between hosts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import GPU, report

JOB = Path(__file__).with_name("two_hosts_job.py")


@dataclass(frozen=True)
class Case:
    """Job of two ranks, whether it runs as two hosts, and what its log says of the way on a GPU: a
    job that takes another way shows nothing of this one."""

    job: str
    apart: bool
    says: str = ""


CASES = {
    "c10d by NCCL": Case("c10d", apart=True),
    "smddp by NCCL": Case("smddp", apart=True, says="on 2 hosts go by nccl"),
    "pipeline by NCCL": Case("pipeline", apart=True, says="tensors between GPUs go by NCCL"),
    "pipeline by the host": Case("pipeline", apart=False, says="go through the hosts' memory"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(case: Case, rank: int, port: int, output: Path) -> subprocess.Popen[bytes]:
    """A rank of a job; apart from the other, on the CPU, too, where there is root to do it."""
    alone = case.apart and os.geteuid() == 0
    # CUDA asks /proc for itself, by the number that the process has in its namespace.
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if alone else []
    place = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    if case.apart:
        place = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_HOSTID": f"host-{rank}"}
    return subprocess.Popen(
        [*apart, sys.executable, str(JOB), case.job, "cuda" if GPU else "cpu"],
        env=os.environ
        | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            **place,
            "NCCL_IB_DISABLE": "1",
            "SMDDP_GPU_ROUTE": "nccl" if GPU else "auto",
            "SM_LOG_LEVEL": "10",  # shows the way that tensors take
            "SMP_TIMEOUT_SECONDS": "20",
        },
        stdin=subprocess.DEVNULL,
        stdout=output.open("wb"),
        stderr=subprocess.STDOUT,
    )


def run(name: str, seconds: float) -> dict[str, Any]:
    """Findings of rank 0, or the reason why there are none."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"rank{rank}" for rank in range(2)]
        port = free_port()
        ranks = [start(case, rank, port, output) for rank, output in enumerate(outputs)]
        deadline = time.monotonic() + seconds
        codes: list[int | None] = []
        for one in ranks:
            try:
                codes.append(one.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
        for one in ranks:
            one.kill()
            one.wait(10)
        texts = [output.read_text(errors="replace") for output in outputs]
    for rank, text in enumerate(texts):
        print(f"--- {name}, rank {rank}, exit code {codes[rank]}:\n{text}", flush=True)
    results = [line for line in texts[0].splitlines() if line.startswith("RESULT ")]
    if codes != [0, 0] or not results:
        return {"failed": f"exit codes {codes}; {' | '.join(texts[0].splitlines()[-3:])}"}
    if GPU and case.says not in "".join(texts):
        return {"failed": f"its ranks did not say that tensors {case.says!r}"}
    return dict(json.loads(results[-1].removeprefix("RESULT ")))


def main() -> int:
    begin = time.monotonic()
    limit = 0.9 * float(sys.argv[3])  # so that what was found is told
    found: dict[str, Any] = {}
    for number, name in enumerate(CASES):
        left = limit - (time.monotonic() - begin)
        found[name] = run(name, left / (len(CASES) - number))
        report(found)
    return 1 if any("failed" in one for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
