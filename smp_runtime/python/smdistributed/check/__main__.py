# SPDX-License-Identifier: Apache-2.0
"""Runs the check on each rank; the first one prints it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from smdistributed.check.host_facts import RankFacts, rank_facts
from smdistributed.check.link_probe import (
    Link,
    Round,
    between_hosts,
    inside_hosts,
    receive_probe,
    send_probe,
)
from smdistributed.check.outliers import Numbers, find_outliers, table
from smdistributed.dataparallel.torch import torch_smddp

Value = TypeVar("Value", Link, RankFacts)
_JOIN_SECONDS = 120  # hosts prepare themselves at their own pace
_SECONDS_A_HOST = 5


def _join() -> None:
    """Ranks of a launcher, or the plain processes of several hosts."""
    os.environ.pop("SMP_RECORDS", None)  # the probe sends none of the job's records
    hosts = int(os.environ.get("SM_HOST_COUNT", "1"))
    if "RANK" not in os.environ and hosts > 1:
        own = {"RANK": os.environ["SM_CURRENT_HOST_RANK"], "WORLD_SIZE": str(hosts)}
        os.environ.update(own, LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(torch_smddp.BACKEND, timeout=timedelta(seconds=_JOIN_SECONDS))


def _end_after(seconds: float) -> None:
    """A rank that hangs, in a driver or a broken network, must not keep the job from its start."""

    def end() -> None:
        print(f"Error: the check did not end within {seconds:.0f} s", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _device() -> torch.device:
    """This rank's GPU, where each rank of the host has one."""
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= local_size:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _gather(kind: type[Value], own: Iterable[Value]) -> list[Value]:
    """The values of all ranks, in their order, on each of them. They travel as JSON: a pickle of
    another rank would run what somebody has put into it."""
    if not dist.is_initialized():
        return list(own)
    text = json.dumps([asdict(value) for value in own]).encode()
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(text)]))
    padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
    padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    texts = [part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]
    return [kind(**fields) for one in texts for fields in json.loads(one)]


def _walk(rounds: list[Round], device: torch.device) -> list[Link]:
    """The links of all pairs, each both ways, on all ranks."""
    own: list[Link] = []
    rank = _rank()
    for pairs in rounds:
        for one, other in pairs:
            if rank == one:
                own.append(send_probe(other, device))
                receive_probe(other, device)
            elif rank == other:
                receive_probe(one, device)
                own.append(send_probe(one, device))
    return _gather(Link, own)


def _measure() -> Numbers:
    device = _device()
    _gather(RankFacts, [])  # all compute at the same time
    numbers = Numbers(facts=_gather(RankFacts, [rank_facts(_rank(), device)]))
    hosts = [[one.rank for one in ranks] for ranks in numbers.hosts().values()]
    for kind in dict.fromkeys(("cpu", device.type)):
        on = device if kind == device.type else torch.device("cpu")
        for rounds, found in ((inside_hosts(hosts), numbers.within),
                              (between_hosts(hosts), numbers.across)):  # fmt: skip
            if links := _walk(rounds, on):
                found[kind] = links
    return numbers


def _tell(numbers: Numbers, outliers: list[str], seconds: float) -> None:
    first = numbers.facts[0]
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    print(f"Check before the start, in {seconds:.1f} s: {versions}\n{table(numbers)}")
    for sentence in outliers:
        print(f"Outlier: {sentence}")
    if not outliers:
        print("No outliers")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m smdistributed.check",
        description="Measures ranks and their network before a job starts.",
    )
    parser.add_argument(
        "--outliers", choices=("report", "fail"), default="report", help="fail: with exit status 1"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: all numbers, in one line"
    )
    parsed = parser.parse_args(arguments)
    fails = parsed.outliers == "fail"
    begin = time.perf_counter()
    _end_after(2 * _JOIN_SECONDS + _SECONDS_A_HOST * int(os.environ.get("SM_HOST_COUNT", "1")))
    _join()
    numbers = _measure()
    outliers = find_outliers(numbers)
    if _rank() == 0 and parsed.format == "json":
        print(json.dumps({"check": asdict(numbers), "outliers": outliers}), flush=True)
    elif _rank() == 0:
        _tell(numbers, outliers, time.perf_counter() - begin)
    if dist.is_initialized():
        dist.destroy_process_group()
    if not outliers or not fails:
        return 0
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        print(f"Error: check before the start: {'; '.join(outliers)}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
