#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when an #include or a smp_library(... DEPS ...) breaks the allowed dependencies.

Usage: check_layers.py [ROOT]

The table below is the layering of the code base. A folder may use what it names and, through
that, what those name. Besides, the launcher includes no Torch, CUDA or MPI, no more do the pure
folders of the runtime, and the slow umbrella headers of Torch stay in the bindings. Headers for
programs (smp_runtime/include, included as "smp/...") show nothing of the folders behind them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

RUNTIME = "smp_runtime/"

# folder: what it may use directly
USES: dict[str, tuple[str, ...]] = {
    "smp_runtime/core": (),
    "smp_runtime/torch_compat": ("smp_runtime/core",),
    "smp_runtime/cuda": ("smp_runtime/core", "smp_runtime/torch_compat"),
    "smp_runtime/topology": ("smp_runtime/core",),
    "smp_runtime/schedule": ("smp_runtime/core",),
    "smp_runtime/partition": ("smp_runtime/schedule", "smp_runtime/topology"),
    "smp_runtime/planner": ("smp_runtime/partition", "smp_runtime/schedule"),
    "smp_runtime/record": ("smp_runtime/core",),
    "smp_runtime/transport": ("smp_runtime/core",),
    "smp_runtime/transport/fabric": ("smp_runtime/transport",),
    "smp_runtime/transport/nccl": ("smp_runtime/transport", "smp_runtime/cuda"),
    "smp_runtime/transport/channel": (
        "smp_runtime/transport/fabric",
        "smp_runtime/transport/nccl",
    ),
    "smp_runtime/cluster": ("smp_runtime/core",),
    "smp_runtime/session/deadlock": ("smp_runtime/transport",),
    "smp_runtime/session": (
        "smp_runtime/cluster",
        "smp_runtime/record",
        "smp_runtime/session/deadlock",
        "smp_runtime/topology",
        "smp_runtime/transport/fabric",
        "smp_runtime/transport/nccl",
    ),
    "smp_runtime/smddp/collectives": ("smp_runtime/topology", "smp_runtime/transport/fabric"),
    "smp_runtime/smddp/backend": (
        "smp_runtime/smddp/collectives",
        "smp_runtime/session",
    ),
    "smp_runtime/pipeline": (
        "smp_runtime/record",
        "smp_runtime/schedule",
        "smp_runtime/transport",
    ),
    "smp_runtime/pipeline/engine": (
        "smp_runtime/pipeline",
        "smp_runtime/torch_compat",
        "smp_runtime/transport/channel",
    ),
    "smp_runtime/pipeline/session": ("smp_runtime/pipeline/engine", "smp_runtime/session"),
    "smp_runtime/ddp": ("smp_runtime/session", "smp_runtime/torch_compat"),
    "smp_runtime/sharding/torch_free": ("smp_runtime/core",),
    "smp_runtime/sharding": (
        "smp_runtime/sharding/torch_free",
        "smp_runtime/session",
        "smp_runtime/optimizer",
        "smp_runtime/torch_compat",
    ),
    "smp_runtime/tensor_parallel/torch_free": ("smp_runtime/core",),
    "smp_runtime/tensor_parallel": (
        "smp_runtime/tensor_parallel/torch_free",
        "smp_runtime/session",
        "smp_runtime/torch_compat",
    ),
    "smp_runtime/optimizer": ("smp_runtime/cuda",),
    "smp_runtime/checkpoint": (
        "smp_runtime/optimizer",
        "smp_runtime/partition",
        "smp_runtime/topology",
    ),
    "smp_runtime/checkpoint/session": ("smp_runtime/checkpoint/state", "smp_runtime/session"),
    "smp_runtime/checkpoint/state": ("smp_runtime/checkpoint", "smp_runtime/sharding"),
    "smp_runtime/metrics/outputs": (
        "smp_runtime/cluster",
        "smp_runtime/partition",
        "smp_runtime/checkpoint",
        "smp_runtime/record",
    ),
    "smp_runtime/metrics": ("smp_runtime/metrics/outputs", "smp_runtime/session"),
    "smp_runtime/api": (
        "smp_runtime/checkpoint/session",
        "smp_runtime/checkpoint/state",
        "smp_runtime/metrics",
        "smp_runtime/session",
        "smp_runtime/pipeline/session",
        "smp_runtime/ddp",
        "smp_runtime/sharding",
        "smp_runtime/smddp/backend",
    ),
    "smp_runtime/python": (
        "smp_runtime/planner",
        "smp_runtime/session",
        "smp_runtime/metrics",
        "smp_runtime/pipeline/session",
        "smp_runtime/ddp",
        "smp_runtime/sharding",
        "smp_runtime/tensor_parallel",
        "smp_runtime/optimizer",
        "smp_runtime/checkpoint/session",
        "smp_runtime/checkpoint/state",
        "smp_runtime/smddp/backend",
    ),
    "smp_runtime/packaging": ("smp_runtime/core",),
    "smp_runtime/include": (),
    "opt_ml_layout": ("smp_runtime/core",),
    "entrypoint/network": ("smp_runtime/core",),
    "entrypoint/process": ("smp_runtime/core",),
    "entrypoint/report": ("smp_runtime/record", "smp_runtime/schedule"),
    "entrypoint/config": ("opt_ml_layout", "entrypoint/network", "smp_runtime/cluster"),
    "entrypoint/plan": (
        "entrypoint/config",
        "smp_runtime/partition",
        "smp_runtime/topology",
    ),
    "entrypoint/fetch": ("entrypoint/plan", "entrypoint/process"),
    "entrypoint/ssh": ("entrypoint/plan", "entrypoint/process"),
    "entrypoint/doctor": ("entrypoint/ssh",),
    "entrypoint/runners": ("entrypoint/ssh",),
    "entrypoint/job/failure": ("opt_ml_layout", "entrypoint/process", "entrypoint/report"),
    "entrypoint/job": (
        "entrypoint/job/failure",
        "entrypoint/runners",
        "entrypoint/doctor",
        "entrypoint/fetch",
    ),
    "entrypoint/hostname_shim": (),
    "entrypoint": ("entrypoint/job",),
}

TORCH = re.compile(r"(torch|ATen|c10|caffe2|pybind11)/|cuda|nccl|mpi\.h$")
UMBRELLAS = ("torch/torch.h", "torch/extension.h")
TORCH_FREE = (
    RUNTIME + "core",
    RUNTIME + "topology",
    RUNTIME + "schedule",
    RUNTIME + "partition",
    RUNTIME + "planner",
    RUNTIME + "transport",
    RUNTIME + "transport/fabric",
    RUNTIME + "smddp/collectives",
    RUNTIME + "pipeline",
    RUNTIME + "cluster",
    RUNTIME + "session/deadlock",
    RUNTIME + "sharding/torch_free",
    RUNTIME + "metrics/outputs",
    RUNTIME + "tensor_parallel/torch_free",
)

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
LIBRARY = re.compile(r"smp_library\(\s*(\w+)(.*?)\)", re.DOTALL)


@cache
def allowed(folder: str) -> frozenset[str]:
    """Everything that `folder` may use: itself, what the table names, and so on down."""
    found = {folder}
    for used in USES.get(folder, ()):
        found |= allowed(used)
    return frozenset(found)


def folder_of(path: str) -> str | None:
    """The row of the table that a file belongs to; None for a file outside the layers."""
    parts = path.split("/")
    if "/".join(parts[:3]) in USES:
        return "/".join(parts[:3])
    if parts[0] == "smp_runtime" and len(parts) > 2:
        return "/".join(parts[:2])
    if parts[0] == "entrypoint":
        return "/".join(parts[:2]) if len(parts) > 2 else "entrypoint"
    return parts[0] if parts[0] in ("opt_ml_layout", "tests") else None


def library_folder(name: str) -> str | None:
    """The folder of `smp_library(name)`: pipeline, opt_ml_layout, entrypoint_plan."""
    for folder in USES:
        if name in (folder.removeprefix(RUNTIME).replace("/", "_"), folder.replace("/", "_")):
            return folder
    return None


def break_of(user: str, used: str) -> str | None:
    if used == "tests":
        return "nothing may use tests"
    if user not in USES:
        return f"folder {user} is not in the table of ci/check_layers.py"
    if used not in allowed(user):
        options = ", ".join(sorted(allowed(user) - {user})) or "nothing"
        return f"{user} may not use {used}; it may use {options}"
    return None


def check_include(path: str, header: str) -> str | None:
    """The rule that `path` breaks by including `header`, or None."""
    user = folder_of(path)
    if user is None or user == "tests":
        return None
    used = folder_of(header)
    if used is not None:
        return break_of(user, used)
    torch_free = user in TORCH_FREE or not user.startswith(RUNTIME)
    if TORCH.match(header) and torch_free:
        return f"{user} links no Torch, CUDA or MPI"
    if header in UMBRELLAS and user != RUNTIME + "python":
        return "costs 20 s a file; include narrow ATen and c10d headers"
    return None


def check_library(path: str, name: str, body: str) -> Iterator[str]:
    user = library_folder(name)
    if user is None:
        return
    for dependency in re.findall(r"smp::(\w+)", body):
        used = library_folder(dependency)
        if used is not None and (problem := break_of(user, used)):
            yield f"{path}: smp_library({name}): {problem}"


def check_tree(root: Path) -> Iterator[str]:
    for top in ("opt_ml_layout", "entrypoint", "smp_runtime"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix in (".h", ".cc", ".cu"):
                for number, line in enumerate(file.read_text().splitlines(), start=1):
                    match = INCLUDE.match(line)
                    if match and (problem := check_include(path, match[1] or match[2])):
                        yield f"{path}:{number}: {line.strip()}: {problem}"
            elif file.name == "CMakeLists.txt":
                for match in LIBRARY.finditer(file.read_text()):
                    yield from check_library(path, match[1], match[2])


def main() -> int:
    if "--help" in sys.argv or "-h" in sys.argv:
        print(__doc__)
        return 0
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = list(check_tree(root))
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
