# SPDX-License-Identifier: Apache-2.0
"""The launcher on 8 and 32 hosts of 8 ranks, which two cores bear, namespaces of this machine:
start and end of a job, of one whose rank fails, of one that loses a host, and of one that is
stopped."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark import ROOT, Result, middle

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "launcher"))
import cluster
from host_load import Load
from jobs import job_environment, train_binary, trees_folder
from many_hosts_job import ManyHosts

SIZES = {8: 3, 32: 2}  # hosts, and how often
RANKS_EACH = 8
PLANNED = 1024
LONGER, DESCRIPTORS, LOSS_SECONDS = 4, 1024, 30
GOAL = (
    f"{max(SIZES)} hosts x {RANKS_EACH}: the first line and the end in at most {LONGER} times what "
    f"{min(SIZES)} hosts take, no process near {DESCRIPTORS:,} descriptors, a lost host named "
    f"within {LOSS_SECONDS} s"
)


@dataclass(frozen=True)
class Round:
    """Seconds but for the loads."""

    first_line: float
    all_up: float
    end: float
    processor: float
    master: Load
    worker: Load


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def job_of(folder: str, hosts: int) -> ManyHosts:
    return ManyHosts(Path(folder), hosts, RANKS_EACH)


def new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=trees_folder())


def run_job(hosts: int) -> Round:
    with new_folder() as folder, job_of(folder, hosts) as job:
        before = processor_seconds()
        ups = job.start_ranks()
        master, worker = Load.of(job.master), Load.of(job.hosts[job.names[-1]])
        begin = time.monotonic()
        job.open_gate()
        results = job.finish()
        end = time.monotonic() - begin
        processor = processor_seconds() - before
    check([result.code for result in results] == [0] * hosts, results[0].err)
    return Round(ups[0], ups[-1], end, processor, master, worker)


def check(good: bool, text: str) -> None:
    if not good:
        raise SystemExit(f"ci/bench many_hosts: a job did not end as it should:\n{text[-4000:]}")


def end_badly(hosts: int, how: str) -> float:
    """Seconds until all hosts have ended and say why: a rank `failed`, a host was `lost`, or all
    were `stopped`."""
    last = hosts * RANKS_EACH - 1
    with new_folder() as folder, job_of(folder, hosts) as job:
        job.start_ranks(failing=last if how == "failed" else None)
        lost = job.names[-1] if how == "lost" else ""
        begin = time.monotonic()
        if how == "failed":
            job.open_gate()
        elif how == "lost":
            job.hosts[lost].signal(signal.SIGKILL)
        else:
            for host in job.hosts.values():
                host.signal(signal.SIGTERM)
        results = job.finish(without=lost)
        took = time.monotonic() - begin
        told = "" if how == "stopped" else results[0].tree.failure
    code = {"failed": 1, "lost": 1, "stopped": 143}[how]
    named = {"failed": f"rank {last}", "lost": job.names[-1], "stopped": ""}[how]
    check([result.code for result in results] == [code] * len(results), results[0].err)
    check(named in told, told)
    return took


def plan_seconds(hosts: int) -> float:
    """Of `train --plan` for so many hosts."""
    with new_folder() as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "rank.sh").write_text("true\n")
        make_tree = [train_binary(), "--make-tree", folder / "job", "--code", folder / "code",
                     "--copy", "--program", "rank.sh", "--hosts", hosts,
                     "--processes", RANKS_EACH]  # fmt: skip
        subprocess.run(list(map(str, make_tree)), check=True, capture_output=True)
        begin = time.monotonic()
        done = subprocess.run(
            [train_binary(), "--plan"],
            env=job_environment(SAGEMAKER_BASE_DIR=str(folder / "job" / "algo-1")),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        took = time.monotonic() - begin
    check(f"algo-{hosts}:{RANKS_EACH}" in done.stdout, done.stdout + done.stderr)
    return took


def loads(title: str, found: dict[int, Load]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in ("processes", "descriptors", "connections", "memory_kb"):
        values = [getattr(load, name) for load in found.values()]
        unit = {"descriptors": "descriptors of one process", "memory_kb": "memory, MB"}
        digits = [f"{value / 1e3:.0f}" if name == "memory_kb" else str(value) for value in values]
        rows.append((f"{title}: {unit.get(name, name)}", *digits))
    return rows


def run() -> list[Result]:
    installed = ROOT / ".venv" / "bin" / "train"
    if installed.exists():
        os.environ.setdefault("SMP_TRAIN", str(installed))
    if problem := cluster.lacks():
        raise SystemExit(f"ci/bench many_hosts: {problem}")
    rounds = {hosts: [run_job(hosts) for _ in range(times)] for hosts, times in SIZES.items()}
    rows: list[tuple[str, ...]] = [(f"hosts x {RANKS_EACH}, s", *map(str, rounds))]
    times: dict[str, dict[int, float]] = {}
    for name, title in (
        ("first_line", "first line of a rank"),
        ("all_up", "all ranks up"),
        ("end", "last line to all hosts' end"),
        ("processor", "processor time of all"),
    ):
        times[name] = {n: middle([getattr(one, name) for one in rounds[n]]) for n in rounds}
        rows.append((title, *(f"{value:.2f}" for value in times[name].values())))
    rows.append(("processor time a host", *(f"{times['processor'][n] / n:.2f}" for n in rounds)))
    rows += loads("master", {n: found[-1].master for n, found in rounds.items()})
    rows += loads("a worker", {n: found[-1].worker for n, found in rounds.items()})
    few, many = min(rounds), max(rounds)
    endings = {how: end_badly(many, how) for how in ("failed", "lost", "stopped")}
    blanks = [""] * (len(rounds) - 1)
    for how, title in (
        ("failed", "a rank's failure to all hosts' end"),
        ("lost", "a host's loss to the others' end"),
        ("stopped", "SIGTERM to all hosts' end"),
    ):
        rows.append((title, *blanks, f"{endings[how]:.2f}"))
    rows.append((f"train --plan for {PLANNED:,} hosts", *blanks, f"{plan_seconds(PLANNED):.2f}"))
    most = max(max(one.master.descriptors, one.worker.descriptors) for one in rounds[many])
    starts, ends = times["first_line"], times["end"]
    return [
        Result("many-hosts-start", starts[many], starts[few], LONGER, GOAL, rows),
        Result("many-hosts-end", ends[many], ends[few], LONGER, GOAL),
        Result("many-hosts-descriptors", most, DESCRIPTORS, 0.9, GOAL),
        Result("many-hosts-loss", endings["lost"], LOSS_SECONDS, 1, GOAL),
    ]
