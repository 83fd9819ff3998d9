# SPDX-License-Identifier: Apache-2.0
"""A step of ResNet-18 in C++ in replicas between two hosts, with gradients averaged beside the
backward, and as programs without DDP do it: by c10d's Gloo after the backward. Needs ci/build."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmark import ROOT, Result, build_program, middle, spread
from wire import RATE_MBIT, Layout, run_on

LAYOUT = Layout(2, 1)
# The all-reduces take 3.9 s of the wire: with few images there is no backward to hide them behind.
BATCH, STEPS, WARM, TURNS = 32, 4, 2, 2
LIMIT = 0.7
GOAL = (
    f"a step of ResNet-18 in C++, {BATCH} images a host, {LAYOUT.text} at {RATE_MBIT} Mbit/s: at "
    f"most {LIMIT:g} of the time with an all-reduce of each gradient over Gloo after the backward"
)
EXECUTE = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


def seconds(words: list[str]) -> list[float]:
    output = run_on(LAYOUT, [*words, str(BATCH), str(STEPS)])
    return list(json.loads(output.split("RESULT ")[1].splitlines()[0]))[WARM:]


def run() -> list[Result]:
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        program = build_program(Path(name), ROOT / "tests/bench/jobs/resnet18", "resnet18")
        for _ in range(TURNS):
            ours += seconds(["-c", EXECUTE, str(program)])
            theirs += seconds([str(ROOT / "tests/bench/jobs/resnet18_gloo_job.py")])
    rows: list[tuple[str, ...]] = [("a step", "ms (min-max)")]
    rows += [("C++, beside the backward", spread(ours)), ("Gloo, after it", spread(theirs))]
    return [Result("resnet18", middle(ours), middle(theirs), LIMIT, GOAL, rows)]
