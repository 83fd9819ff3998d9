# SPDX-License-Identifier: Apache-2.0
"""What the processes of a host hold: descriptors, connections, threads and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster import Host

ESTABLISHED = "01"  # in the kernel's tables of connections


def family(pid: int) -> Iterator[int]:
    """The process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it has ended
            continue
        for child in children:
            yield from family(int(child))


def descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def numbers(pid: int, file: str) -> dict[str, int]:
    """Of a file of the process such as `status`, by their names; sizes in KB."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return {}
    fields = [line.replace(":", " ").split() for line in lines]
    return {line[0]: int(line[1]) for line in fields if len(line) > 1 and line[1].isdigit()}


def connections(pid: int) -> int:
    """Of TCP, of all processes in its network."""
    rows = []
    for table in ("tcp", "tcp6"):
        rows += Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    return sum(row.split()[3] == ESTABLISHED for row in rows)


@dataclass(frozen=True)
class Load:
    processes: int
    descriptors: int  # of the process that has most
    connections: int
    memory_kb: int  # of all, each with its share of what several use

    @classmethod
    def of(cls, host: Host) -> Load:
        train = host.pid_of_train()
        processes = list(family(train))
        return cls(
            len(processes),
            max(descriptors(pid) for pid in processes),
            connections(train),
            sum(numbers(pid, "smaps_rollup").get("Pss", 0) for pid in processes),
        )
