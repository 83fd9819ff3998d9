# SPDX-License-Identifier: Apache-2.0
"""Size of the image, time to build it again, and whether two builds are equal."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomllib
from benchmark import ROOT, Result
from image_layers import layer_folders, usage
from source_copy import copy_source, edit

# The first build takes some 15 minutes, and so does the one without any cache.
GOAL = (
    "image within its sizes; rebuilt after one edit within 3 to 90 s, by what was edited; two "
    "builds give one image id"
)
# A limit covers the whole of ci/image, from the command to an image that runs.
EDITS = (
    ("nothing", None, 3.0),
    ("a Python file", "smp_runtime/python/smdistributed/__init__.py", 15.0),
    ("a .cc of the launcher", "entrypoint/config/shell_text.cc", 30.0),
    ("a .cc of the runtime", "smp_runtime/pipeline/engine/gradient_ledger.cc", 90.0),
)
NEEDS_BUILD = False
TAG, CLEAN, SLIM = "smp-bench:image", "smp-bench:clean", "smp-bench:slim"


def docker(*words: str) -> str:
    found = subprocess.run(
        [ROOT / "ci/engine", "start"], capture_output=True, text=True, check=True
    )
    name, _, value = found.stdout.strip().splitlines()[-1].partition("=")
    client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
    environment = os.environ | {name: value}
    command = [client, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(folder: Path, *options: str, tag: str = TAG) -> float:
    """[s]"""
    start = time.monotonic()
    command = [folder / "ci/image", "--tag", tag, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seconds = time.monotonic() - start
    print(
        f"image: {' '.join((tag, *options))} built in {seconds:.1f} s", file=sys.stderr, flush=True
    )
    return seconds


def normalised(folder: Path, tag: str) -> str:
    """The image's id without the build's clock."""
    command = [folder / "ci/normalise", tag]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def size_of(tag: str) -> float:
    """[MB]"""
    return int(docker("image", "inspect", "--format", "{{.Size}}", tag)) / 1e6


def own_layer() -> int:
    history = docker("history", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", TAG)
    ours = next(line for line in history.splitlines() if "COPY /out/ / " in line + " ")
    return int(ours.split()[0])


def run() -> Result:
    budgets = tomllib.loads((ROOT / "ci/budgets.toml").read_text())
    budget = budgets["megabytes"]
    rows: list[tuple[str, ...]] = [("what", "measured", "limit")]
    shares = []

    def add(what: str, measured: float, limit: float, unit: str) -> None:
        rows.append((what, f"{measured:.1f} {unit}", f"{limit:g} {unit}"))
        shares.append(measured / limit)

    with tempfile.TemporaryDirectory(prefix="smp-bench-") as name:
        source = Path(name) / "source"
        copy_source(source)
        rows.append(("first build, warm caches", f"{build(source):.1f} s", "-"))
        for what, path, limit in EDITS:
            if path is not None:
                edit(source / path)
            add(f"rebuild after editing {what}", build(source), limit, "s")
        rows.append(
            ("the same without any cache", f"{build(source, '--no-cache', tag=CLEAN):.1f} s", "-")
        )
        ids = [normalised(source, tag) for tag in (TAG, CLEAN)]
        build(source, "--slim", tag=SLIM)
    add("image", size_of(TAG), budget["image"], "MB")
    add("slim image", size_of(SLIM), budget["image_slim"], "MB")
    add("our own layer", own_layer() / 1e6, budget["own_layer"], "MB")
    layers = layer_folders(docker("image", "inspect", "--format", "{{json .GraphDriver}}", TAG))
    if layers:
        used = usage(layers)
        add("wasted", used.wasted / 1e6, budget["wasted"], "MB")
        efficiency, least = used.efficiency, budgets["shares"]["efficiency"]
        rows.append(("share of the bytes that is seen", f"{efficiency:.4f}", f">= {least}"))
        shares.append((1 - efficiency) / (1 - least))
    rows += [
        ("image id, normalised", ids[0][:19], "-"),
        ("that without any cache", ids[1][:19], "-"),
    ]
    add("different image ids beyond the first", len(set(ids)) - 1.0, 0.5, "")
    docker("rmi", "--force", TAG, CLEAN, SLIM)
    return Result("image", max(shares), 1.0, 1.0, GOAL, rows)
