# SPDX-License-Identifier: Apache-2.0
"""The planner's suggestions against measured steps: compositions of small models, really trained by
four processes on one host and on two. What a check of the same machine has measured is all that the
planner knows of it. SUGGEST_MODELS="gpt2 bert", SUGGEST_HOSTS=2 and SUGGEST_RUNS=12 make it
shorter."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmark import ROOT, Result
from wire import Layout, run_on

MODELS = (
    *("gpt2-small", "gpt2", "gpt2-wide", "llama-small", "llama", "llama-wide"),
    *("bert", "t5", "vit", "resnet50", "uneven"),
)
LAYOUTS = (Layout(hosts=1, ranks_each=4, rate_mbit=0), Layout(hosts=2, ranks_each=2))
BATCH, STEPS, RUNS = 16, 5, 25
SLOWEST = 4  # times the best: what is predicted to take longer is not run
LIMIT = 1.05
GOAL = (
    f"the suggested composition is at most {LIMIT - 1:.0%} slower than the best measured one; "
    "Spearman's correlation of predicted and measured samples a second is at least 0.95"
)
# Namespaces of one machine have its name; a check tells hosts apart by theirs.
CHECK = """
import os, runpy, sys
host = int(os.environ["RANK"]) // int(os.environ["LOCAL_WORLD_SIZE"])
os.environ["SM_CURRENT_HOST"] = f"host-{host + 1}"
sys.argv = ["check", "--format", "json"]
runpy.run_module("smdistributed.check", run_name="__main__")
"""
Row = dict[str, Any]


def run() -> list[Result]:
    models = os.environ.get("SUGGEST_MODELS", " ".join(MODELS)).split()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for layout in LAYOUTS:
            if os.environ.get("SUGGEST_HOSTS", str(layout.hosts)) != str(layout.hosts):
                continue
            machines = Path(folder, "machines.json")
            machines.write_text(json.dumps({"machines": measured(layout)}))
            results += [case(model, layout, machines, Path(folder)) for model in models]
    for number, result in enumerate(results):
        if number:
            result.rows.pop(0)
    return results


def measured(layout: Layout) -> Row:
    """The machines by a check. Hosts of namespaces share the processors of this machine."""
    output = run_on(layout, ["-c", CHECK])
    checked = Path(tempfile.mkstemp()[1])
    checked.write_text(output)
    code = (
        "import json, pathlib, sys\n"
        "from smdistributed.modelparallel.torch._planning.machines import measured_machines\n"
        "print('RESULT ' + json.dumps(measured_machines(pathlib.Path(sys.argv[1]), None)))"
    )
    alone = Layout(hosts=1, ranks_each=1, rate_mbit=0)
    machines: Row = result_of(run_on(alone, ["-c", code, str(checked)]))[0]
    checked.unlink()
    processors = max(1, machines["processors"] // layout.hosts)
    every = layout.ranks_each / processors
    counted = max(1.0, layout.ranks_each / machines["processors"])
    machines["device"]["flops_32"] *= max(1.0, every) / counted
    machines["processors"] = processors
    return machines


def result_of(output: str) -> list[Any]:
    lines = [line for line in output.splitlines() if "RESULT " in line]
    return [json.loads(line.partition("RESULT ")[2]) for line in lines]


def case(model: str, layout: Layout, machines: Path, folder: Path) -> Result:
    jobs = ROOT / "tests" / "bench" / "jobs"
    alone = Layout(hosts=1, ranks_each=1, rate_mbit=0)
    plan = [str(jobs / "suggest_plan_job.py"), model, str(BATCH), str(machines)]
    predicted = result_of(run_on(alone, plan))[0]["best"]
    rows = chosen(predicted, int(os.environ.get("SUGGEST_RUNS", RUNS)))
    compositions = folder / "compositions.json"
    compositions.write_text(json.dumps(rows))
    train = [str(jobs / "suggest_job.py"), model, str(BATCH), str(STEPS), str(compositions)]
    found = result_of(run_on(layout, train))
    speeds = [
        row["samples_a_step"] / statistics.median(one["times"])
        for row, one in zip(rows, found, strict=True)
    ]
    memory = max(
        # The ledger tells nothing of what comes and goes within a step.
        abs(one["peak"] / (row["memory_bytes"] - row["memory"]["buffers"]) - 1)
        for row, one in zip(rows, found, strict=True)
    )
    agreed = spearman([row["samples_per_second"] for row in rows], speeds)
    if folder := os.environ.get("SUGGEST_RECORD", ""):  # for who looks closer
        record = [row | one for row, one in zip(rows, found, strict=True)]
        Path(folder, f"{model}-{layout.hosts}.json").write_text(json.dumps(record))
    result = Result(f"suggest-{model}-{layout.hosts}", max(speeds), speeds[0], LIMIT, GOAL)
    heading = ("case", "runs", "regret", "Spearman", "memory off by", "suggested")
    settings = json.dumps(rows[0]["mp_parameters"])
    result.rows.extend(
        [
            heading,
            (f"{model}, {layout.text}", str(len(rows)), f"{result.ratio - 1:.1%}",
             f"{agreed:.2f}", f"{memory:.0%}", settings),
        ]
    )  # fmt: skip
    return result


def chosen(rows: list[Row], most: int) -> list[Row]:
    """The first, and others evenly over the order, as far as they do not take too long."""
    least = rows[0]["samples_per_second"] / SLOWEST
    near = [row for row in rows if row["samples_per_second"] >= least]
    step = max(1.0, len(near) / most)
    return [near[int(number * step)] for number in range(min(most, len(near)))]


def ranks(values: list[float]) -> list[float]:
    order = sorted(values)
    return [statistics.mean(n for n, one in enumerate(order) if one == value) for value in values]


def spearman(one: list[float], other: list[float]) -> float:
    """
    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    return statistics.correlation(ranks(one), ranks(other))
