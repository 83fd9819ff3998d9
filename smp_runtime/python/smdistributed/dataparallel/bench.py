# SPDX-License-Identifier: Apache-2.0
"""Measures collectives of ``smddp`` beside other backends, in the terms of nccl-tests::

    mpirun -np 4 python -m smdistributed.dataparallel.bench all_reduce --end 64M --plot out.png

Run it as a training script: under ``mpirun``, torchrun or ``train``. Open MPI asks root for
``--allow-run-as-root``, and for ``--oversubscribe`` where processes outnumber cores.

Backends take turns, so that a busy machine slows all of them. A time is the median over rounds of
the slowest rank's mean. The algorithm bandwidth is the size over the time; the bus bandwidth is
that times the share of the data that each rank must move, so that it can be compared with the
hardware whatever the number of ranks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from smdistributed.dataparallel.torch import torch_smddp

#: The size of a row is that of the whole: what an all_gather gives and a reduce_scatter takes.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")
DEVICES = ("cpu", "cuda")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
#: Data that a round moves at least, unless one call moves more.
_ROUND_BYTES = 2**23


@dataclass(frozen=True)
class Row:
    """Medians; seconds by backend."""

    size_bytes: int
    seconds: dict[str, float]


def bus_factor(operation: str, ranks: int) -> float:
    """Factor from algorithm bandwidth to bus bandwidth, as nccl-tests derives it.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce") else (ranks - 1) / ranks


def size_of(text: str) -> int:
    """Bytes of a text such as 8, 64K or 1G.

    >>> size_of("8"), size_of("64K"), size_of("2m")
    (8, 65536, 2097152)
    """
    digits = text.rstrip("kKmMgG")
    unit = text[len(digits) :].upper()
    if not digits.isdigit() or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 8, 64K, 16M or 1G")
    return int(digits) * _UNITS[unit]


def sizes(begin: int, end: int, factor: int) -> Iterator[int]:
    """
    >>> list(sizes(8, 100, 4))
    [8, 32]
    """
    while begin <= end:
        yield begin
        begin *= factor


def backends_here() -> dict[str, tuple[str, ...]]:
    """The backends that can be measured, with the devices whose tensors they take. NCCL wants a GPU
    for each rank of the host; the ranks of MPI are those of mpirun."""
    gpus = torch.cuda.is_available()
    both = DEVICES if gpus else DEVICES[:1]
    found: dict[str, tuple[str, ...]] = {torch_smddp.BACKEND: both}
    if dist.is_gloo_available():
        found["gloo"] = both
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if gpus and dist.is_nccl_available() and torch.cuda.device_count() >= ranks:
        found["nccl"] = ("cuda",)
    if dist.is_mpi_available() and not dist.is_torchelastic_launched():
        found["mpi"] = ("cpu",)
    if dist.is_ucc_available():
        found["ucc"] = both
    return found


def device_for(backends: list[str], here: dict[str, tuple[str, ...]]) -> str:
    """The device where nobody says: the CPU, unless a backend takes tensors of GPUs only.

    >>> here = {"smddp": ("cpu", "cuda"), "nccl": ("cuda",)}
    >>> device_for(["smddp"], here), device_for(["smddp", "nccl"], here)
    ('cpu', 'cuda')
    """
    return "cuda" if any(here[name] == ("cuda",) for name in backends) else "cpu"


def complaint(backends: list[str], device: str, here: dict[str, tuple[str, ...]]) -> str:
    """Names what cannot be measured; empty if all can. ``device`` may be empty.

    >>> complaint(["smddp", "foo"], "", {"smddp": ("cpu",), "gloo": ("cpu",)})
    "--backends: there is no 'foo' here; there are: smddp, gloo"
    >>> complaint(["smddp"], "cuda", {"smddp": ("cpu",)})
    '--device cuda: smddp takes tensors of cpu only here'
    """
    for name in backends:
        if name not in here:
            why = " (it needs a GPU for each rank of the host)" if name == "nccl" else ""
            return f"--backends: there is no {name!r} here{why}; there are: {', '.join(here)}"
    wanted = device or device_for(backends, here)
    for name in backends:
        if wanted not in here[name]:
            return f"--device {wanted}: {name} takes tensors of {', '.join(here[name])} only here"
    return ""


def _call(
    operation: str, size: int, group: dist.ProcessGroup | None, device: str
) -> Callable[[], object]:
    """One call; MAX, so that numbers stay what they are over thousands of calls."""
    ranks, most = dist.get_world_size(), dist.ReduceOp.MAX
    count = max(size // 4 // ranks, 1) * ranks
    whole, part = torch.ones(count, device=device), torch.ones(count // ranks, device=device)
    other = torch.empty_like(whole)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, most, group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, most, group),
        "broadcast": lambda: dist.broadcast(whole, 0, group),
        "reduce": lambda: dist.reduce(whole, 0, most, group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }
    return calls[operation]


def _group(backend: str) -> dist.ProcessGroup:
    group = dist.new_group(backend=backend)
    assert isinstance(group, dist.ProcessGroup)  # every rank is in it
    return group


def measure(
    operation: str, all_sizes: list[int], backends: list[str], rounds: int, device: str = "cpu"
) -> Iterator[Row]:
    """Collective. Joins the job if nobody has. Rows come as they are measured. On ``cuda`` each
    rank takes the GPU of its number on the host."""
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not dist.is_initialized():
        dist.init_process_group(torch_smddp.BACKEND, timeout=timedelta(minutes=5))
    groups = {name: _group(name) for name in backends}
    clock = _group("gloo")
    for size in all_sizes:
        calls = {name: _call(operation, size, group, device) for name, group in groups.items()}
        repeats = max(1, min(300, _ROUND_BYTES // size))
        times: dict[str, list[float]] = {name: [] for name in backends}
        for turn in range(rounds + 1):  # the first one warms up
            for name, call in calls.items():
                dist.barrier(clock)
                start = time.perf_counter()
                for _ in range(repeats):
                    call()
                if device == "cuda":
                    torch.cuda.synchronize()
                took = torch.tensor((time.perf_counter() - start) / repeats, dtype=torch.float64)
                dist.all_reduce(took, dist.ReduceOp.MAX, clock)
                if turn > 0:
                    times[name].append(took.item())
        yield Row(size, {name: sorted(found)[len(found) // 2] for name, found in times.items()})


def _heading(backends: list[str]) -> str:
    names = "".join(f"{name:>33}" for name in backends)
    columns = f"{'us':>13}{'algbw':>10}{'busbw':>10}" * len(backends)
    return f"{'':>12}{names}\n{'bytes':>12}{columns}   (GB/s)"


def _line(operation: str, row: Row) -> str:
    factor = bus_factor(operation, dist.get_world_size())
    cells = []
    for seconds in row.seconds.values():
        speed = row.size_bytes / seconds / 1e9
        cells.append(f"{1e6 * seconds:13.1f}{speed:10.3f}{factor * speed:10.3f}")
    return f"{row.size_bytes:>12}{''.join(cells)}"


def size_text(size: float) -> str:
    """The text that size_of() reads.

    >>> size_text(8), size_text(65536), size_text(3 * 2**20)
    ('8', '64K', '3M')
    """
    unit = max((one for one in _UNITS if size >= _UNITS[one]), key=lambda one: _UNITS[one])
    return f"{size / _UNITS[unit]:g}{unit}"


def _drawing() -> Any:
    """matplotlib.pyplot without a display. matplotlib is an optional extra."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise SystemExit(
            f"--plot needs matplotlib, which {sys.executable} does not have ({error}); "
            "pip install matplotlib, or leave --plot out: the table has the same figures"
        ) from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def plot(rows: list[Row], operation: str, ranks: int, path: str) -> None:
    """Time and bus bandwidth over size, as a PNG at `path`. Needs matplotlib."""
    pyplot = _drawing()
    factor = bus_factor(operation, ranks)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    counts = [row.size_bytes for row in rows]
    for name in rows[0].seconds:
        seconds = [row.seconds[name] for row in rows]
        speeds = [factor * size / one / 1e9 for size, one in zip(counts, seconds, strict=True)]
        left.plot(counts, [1e6 * one for one in seconds], marker="o", label=name)
        right.plot(counts, speeds, marker="o", label=name)
    left.set(ylabel="time [us]", yscale="log")
    right.set(ylabel="bus bandwidth [GB/s]", ylim=(0, None))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set(xlabel="bytes", xticks=counts[::2], xticklabels=map(size_text, counts[::2]))
        axes.grid(visible=True, alpha=0.3)
    left.legend()
    figure.suptitle(f"{operation}, {ranks} ranks")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _arguments(argv: list[str]) -> argparse.Namespace:
    here = backends_here()
    parser = argparse.ArgumentParser(
        prog="python -m smdistributed.dataparallel.bench",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("operation", nargs="?", default="all_reduce", choices=OPERATIONS)
    parser.add_argument("--begin", type=size_of, default=8, help="smallest size (8)")
    parser.add_argument("--end", type=size_of, default=2**26, help="largest size (64M)")
    parser.add_argument("--factor", type=int, default=4, help="between sizes (4)")
    parser.add_argument(
        "--backends",
        help=f"names with commas (all here that take the device; here are {','.join(here)})",
    )
    parser.add_argument(
        "--device", choices=DEVICES, help="of the tensors (cpu; with nccl named, cuda)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts (5)")
    parser.add_argument("--json", action="store_true", help="one JSON object a size, no table")
    parser.add_argument("--plot", default="", metavar="PNG", help="also draw it; needs matplotlib")
    arguments = parser.parse_args(argv)
    if arguments.factor < 2 or arguments.rounds < 1 or arguments.begin < 1:
        parser.error("--factor must be 2 or more, --rounds and --begin 1 or more")
    if arguments.begin > arguments.end:
        parser.error(f"--begin {arguments.begin} is over --end {arguments.end}")
    if arguments.plot and not Path(arguments.plot).resolve().parent.is_dir():
        parser.error(f"--plot {arguments.plot}: there is no such folder")
    if arguments.backends is None:
        device = arguments.device or DEVICES[0]
        arguments.backends = [name for name, takes in here.items() if device in takes]
    else:
        arguments.backends = [name.strip() for name in arguments.backends.split(",")]
    if problem := complaint(arguments.backends, arguments.device or "", here):
        parser.error(problem)
    arguments.device = arguments.device or device_for(arguments.backends, here)
    return arguments


def main(argv: list[str]) -> None:
    arguments = _arguments(argv)
    if arguments.plot:
        _drawing()  # says what is missing before an hour of measuring
    backends, device = arguments.backends, arguments.device
    all_sizes = list(sizes(arguments.begin, arguments.end, arguments.factor))
    rows = []
    for row in measure(arguments.operation, all_sizes, backends, arguments.rounds, device):
        rows.append(row)
        if dist.get_rank() != 0:
            continue
        if arguments.json:
            print(json.dumps({"bytes": row.size_bytes, "seconds": row.seconds}), flush=True)
            continue
        if len(rows) == 1:
            title = f"{arguments.operation}, {dist.get_world_size()} ranks, tensors on {device}"
            print(f"{title}\n{_heading(backends)}")
        print(_line(arguments.operation, row), flush=True)
    if arguments.plot and dist.get_rank() == 0:
        plot(rows, arguments.operation, dist.get_world_size(), arguments.plot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
