# SPDX-License-Identifier: Apache-2.0
"""Scripts are watched as far as their first step, and settings are suggested for them."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as library
import torch
from smdistributed import _runtime
from smdistributed.modelparallel.torch import job
from smdistributed.modelparallel.torch._planning.answer_text import answer_text, settings_to_paste
from smdistributed.modelparallel.torch._planning.machines import (
    measured_machines,
    of_check,
    read_measurements,
)
from smdistributed.modelparallel.torch._planning.picture import picture
from smdistributed.modelparallel.torch._planning.profiles import split_modules
from smdistributed.modelparallel.torch._planning.suggestions import ask
from smdistributed.modelparallel.torch._planning.watched_script import WatchedScript, watch_script
from torch import nn

Watch = Callable[[str], WatchedScript]

BEGIN = """
import sys, torch, smdistributed.modelparallel.torch as smp
from torch import nn
smp.init({"pipeline_parallel_degree": 4, "microbatches": 2, "ddp": True, "optimize": "speed"})
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)
@smp.step
def step(model, x):
    loss = model(x).flatten(0, 1).logsumexp(1).mean()
    model.backward(loss)
    return loss
"""
TRAINS = """
model = smp.DistributedModel(Net().half().float())
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
for _ in range(2):
    optimizer.zero_grad()
    step(model, torch.zeros(8, 6, dtype=torch.long))
    optimizer.step()
open("trained", "w")
"""


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watches a script of this text, without what SMP_CPU changes for the whole process."""
    monkeypatch.setattr(job.cuda_on_cpu, "install", lambda: None)

    def watched(text: str) -> WatchedScript:
        script = tmp_path / "train.py"
        script.write_text(text)
        try:
            return watch_script(script, ["--epochs", "2"], tmp_path)
        finally:
            library.shutdown()

    return watched


def machines(hosts: int = 1, kind: str = "ml.g5.12xlarge") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(_runtime.instance_machines(kind, hosts))
    return made


def test_a_script_is_noted_and_does_not_train(watch: Watch, tmp_path: Path) -> None:
    seen = watch(BEGIN + TRAINS)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
    profile = seen.profile
    assert profile["batch"] == 8
    assert (profile["optimizer"], profile["moments"]) == ("SGD", 1)
    tied = [one["name"] for one in profile["parameters"]]
    assert tied.count("embedding.weight") == 1
    assert "head.weight" not in tied
    assert sum(one["elements"] for one in profile["parameters"]) == 50 * 16 + 4 * (16 * 16 + 16)
    flops = sum(row[0] * row[3] for module in profile["modules"] for row in module["work"])
    assert flops == 8 * 6 * 2 * (4 * 16 * 16 + 16 * 50)
    assert seen.asked["optimize"] == "speed"
    names = [one["name"] for one in profile["recomputations"]]
    assert names == ["script", "blocks", "all"]
    assert profile["recomputations"][1]["change"].startswith(
        "for block in model.get_module().layers"
    )


def test_what_autograd_keeps_is_what_a_step_keeps(watch: Watch) -> None:
    kept = watch(BEGIN + TRAINS).profile["recomputations"][0]["kept_bytes"]

    rows = 8 * 6
    layers = 4 * 2 * rows * 16 * 4  # of each layer the input or the output of its relu, once
    scores = 2 * rows * 50 * 4  # logsumexp keeps what comes in, and little else
    assert layers / 2 < sum(kept) < layers + 2 * scores


def test_modules_go_where_the_job_puts_them_whatever_parameters_hold(watch: Watch) -> None:
    answer = ask(watch(BEGIN + TRAINS).profile, machines(), fixed={"optimize": "speed"})

    best = answer["best"][0]
    assert best["fits"]
    assert best["mp_parameters"]["optimize"] == "speed"
    assert len(answer["best"]) == 10
    speeds = [row["samples_per_second"] for row in answer["best"]]
    assert max(speeds) * 0.99 <= speeds[0]
    for row in answer["examined"]:
        config = _runtime.make_parallel_config(
            json.dumps(row["mp_parameters"]), "plan", "{}", "none"
        )
        assert 4 % config.pipeline_parallel_degree == 0


def test_the_text_says_what_to_paste_and_how_sure_it_is(watch: Watch) -> None:
    seen = watch(BEGIN + TRAINS)
    answer = ask(seen.profile, machines(), fixed=seen.asked)

    text = answer_text(answer, seen.asked, "train.py")

    assert json.dumps(settings_to_paste(answer["best"][0], seen.asked)) in text
    assert "data sheets of ml.g5.12xlarge" in text
    assert "Not modelled" in text
    assert picture(answer["examined"]).count("<circle") == len(answer["examined"])


def test_one_composition_is_explained_or_refused(watch: Watch) -> None:
    profile = watch(BEGIN + TRAINS).profile
    asked = {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True}

    row = ask(profile, machines(), fixed={}, explain=asked)["explained"]

    assert row["step_seconds"] == pytest.approx(sum(row["times"].values()))
    assert row["memory_bytes"] == pytest.approx(sum(row["memory"].values()), abs=6)
    for wrong, words in (
        ({"pipeline_parallel_degree": 3, "ddp": True}, "is not divisible by partitions 3"),
        ({"microbatches": 3, "ddp": True}, "does not divide the 8 samples"),
        ({"tensor_parallel_degree": 2, "ddp": True}, "the script marks no module"),
        ({"sharded_data_parallel_degree": 2, "pipeline_parallel_degree": 2, "ddp": True},
         "cannot be combined"),
    ):  # fmt: skip
        with pytest.raises(library.exceptions.SMPConfigError, match=words):
            ask(profile, machines(), fixed={}, explain=wrong)


def test_marks_for_tensor_ranks_allow_their_degrees(smp: Any) -> None:
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(5, 12))
    smp.set_tensor_parallelism(model)

    split = split_modules(model)

    assert split.names == {2: ["0"], 4: ["0"]}


REFUSED = {
    "train.py needs a GPU before its first step at train.py:3": (
        "import torch\n\ntorch.cuda.get_device_properties(0)"
    ),
    "steps an optimizer before its first function decorated with smp.step at train.py": (
        BEGIN + "net = Net()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "optimizer.step()"
    ),
    "the shapes of its tensors depend on their values at train.py": (
        BEGIN.replace("x = self.embedding(x)", "x = self.embedding(x[x > 0])") + TRAINS
    ),
    "was called a second time": BEGIN + "smp.DistributedModel(Net())\nsmp.DistributedModel(Net())",
    "has called no function decorated with smp.step. ": BEGIN + "smp.DistributedModel(Net())",
    "nor wrapped a model with smp.DistributedModel": "print('no training at all')",
    "ended with status 3 before its first step": BEGIN + "sys.exit(3)",
    "calls its step before smp.DistributedModel": BEGIN + "step(None, torch.zeros(2, 2))",
    "failed before its first step at train.py:1: KeyError": "{}['data']",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_script_that_cannot_be_planned_for_is_told_why(watch: Watch, words: str) -> None:
    with pytest.raises(library.exceptions.SMPUnsupportedError) as refusal:
        watch(REFUSED[words])

    assert words in str(refusal.value)


def test_of_shapes_that_depend_on_values_the_state_is_told(watch: Watch) -> None:
    with pytest.raises(library.exceptions.SMPUnsupportedError, match="has 1,888 parameters"):
        watch(BEGIN.replace("x = self.embedding(x)", "x = self.embedding(x[x > 0])") + TRAINS)


def test_a_model_that_fits_nowhere_names_the_hosts_that_hold_it() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(20_000, 20_000, bias=False) for _ in range(8)))
    found = library.suggest(
        model, torch.zeros(1, 20_000, device="meta"), instance_type="ml.g4dn.xlarge"
    )

    assert found.settings is None
    needed = found.answer["hosts_needed"]
    # 16 bytes for each of 3.2e9 parameters, over cards of 16 GiB of which a tenth is kept free.
    assert 4 <= needed <= 6
    assert f"The smallest number of such hosts that holds the model: {needed}" in str(found)
    hold = library.suggest(
        model, torch.zeros(1, 20_000, device="meta"), instance_type="ml.g4dn.xlarge", hosts=needed
    )
    assert hold.settings is not None


def test_numbers_of_a_check_are_machines(tmp_path: Path) -> None:
    link = {"source": 0, "target": 1, "bytes_per_second": 1e9, "latency": 1e-4, "clock_ahead": 0}
    facts = [{"host": "a", "flops": 5e10, "cpus": 2}] * 4
    file = tmp_path / "check.txt"
    check = {"facts": facts, "within": {"cpu": [link]}, "across": {}}
    file.write_text("[rank 0]: a line\n[rank 0]: " + json.dumps({"check": check}))

    found = measured_machines(file, None)

    assert found == of_check(check)
    assert (found["hosts"], found["ranks_a_host"], found["processors"]) == (1, 4, 2)
    assert found["device"]["flops_32"] == 1e11  # four ranks shared two processors
    with pytest.raises(library.exceptions.SMPConfigError, match="nothing between hosts"):
        measured_machines(file, 2)
    file.write_text("no numbers")
    with pytest.raises(library.exceptions.SMPConfigError, match="train --check --json"):
        measured_machines(file, None)


def report_of(settings: dict[str, Any], step: float, computing: float) -> dict[str, Any]:
    """Of a job of two ranks on one host, as train writes it."""
    config = _runtime.make_parallel_config(json.dumps(settings), "job", "{}", "none")
    shares = dict.fromkeys(
        ("wait", "gather", "reduce", "exchange", "optimizer", "other", "data"), 0.0
    )
    rank = {"host": "a", "stage": 0, "steps": 9, "trained": 9, "samples_a_step": 8,
            "step_ms": 2e3 * step, "memory_kinds": {"activations": 3000},
            "shares": shares | {"compute": computing / step / 2, "data": 0.5}}  # fmt: skip
    return {
        "format": 1,
        "card": {"facts": {"ranks": 2, "device": "CPU", "settings": json.loads(config.as_json())}},
        "ranks": [rank, dict(rank)],
        "hosts": [{"host": "a", "instance_type": "local", "processors": 2, "memory_total": 2**33}],
    }


def test_the_report_of_a_run_calibrates_the_next(watch: Watch, tmp_path: Path) -> None:
    asked = {"ddp": True, "microbatches": 2}
    profile = watch(BEGIN + TRAINS).profile
    page = tmp_path / "report.html"
    page.write_text(f'<script id="job">{json.dumps(report_of(asked, 0.005, 0.004))}</script>')

    known = read_measurements([page], None, None, None)
    answer = ask(profile, known.machines, fixed={}, run=known.run, explain=asked)

    assert (known.machines["hosts"], known.machines["ranks_a_host"]) == (1, 2)
    assert answer["explained"]["step_seconds"] == pytest.approx(0.005, rel=1e-3)
    assert answer["explained"]["memory"]["activations"] == pytest.approx(3000, rel=0.01)
    text = answer_text(answer, {}, "train.py")
    assert "and it took 0.005 s: computing" in text
    assert str(page) in text
    more = read_measurements([page], "ml.g5.12xlarge", 2, 4)
    assert (more.machines["hosts"], more.machines["device"]["name"]) == (2, "A10G")


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        ("does not say of which type", ("hosts",), []),
        ("some of the steps only evaluated", ("ranks", 0, "trained"), 4),
        ("is without the steps of 2 ranks", ("card", "facts", "ranks"), 4),
        ("has no steps of smp.step", ("ranks",), []),
    ],
)
def test_a_report_that_tells_too_little_is_refused(
    words: str, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    report = copy.deepcopy(report_of({"ddp": True}, 0.5, 0.4))
    place = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report))

    with pytest.raises(library.exceptions.SMPConfigError, match=words):
        read_measurements([file], None, None, None)


def test_a_run_of_another_batch_is_refused(watch: Watch) -> None:
    profile = watch(BEGIN + TRAINS).profile
    run = {"hosts": 1, "ranks_a_host": 1, "settings": {}, "batch": 5, "step_seconds": 1.0,
           "times": dict.fromkeys(("computing", "recomputing", "waiting", "gathering", "reducing",
                                   "exchanging", "updating"), 0.0),
           "activation_bytes": 0}  # fmt: skip

    with pytest.raises(library.exceptions.SMPConfigError, match="has 5 samples in a step"):
        ask(profile, machines(), fixed={}, run=run)


def test_an_unknown_instance_type_names_near_ones() -> None:
    with pytest.raises(library.exceptions.SMPConfigError, match=r"did you mean ml\.p4de?\.24"):
        machines(kind="ml.p4.24xlarge")


def test_the_command_prints_settings_and_writes_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEGIN + TRAINS)
    hyperparameters = tmp_path / "hyperparameters.json"
    hyperparameters.write_text('{"epochs": "2"}')
    command = [sys.executable, "-m", "smdistributed.suggest", "--instance-type", "ml.g5.12xlarge",
               "--json", "--write", hyperparameters, "--svg", tmp_path / "p.svg",
               tmp_path / "train.py"]  # fmt: skip

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path,
                          env=dict(os.environ))  # fmt: skip

    assert done.returncode == 0, done.stderr
    to_paste = json.loads(done.stdout)["to_paste"]
    assert to_paste["pipeline_parallel_degree"] in (1, 2, 4)
    written = json.loads(hyperparameters.read_text())
    assert written["epochs"] == "2"
    assert json.loads(written["mp_parameters"]) == to_paste
    suggestion = json.loads((tmp_path / "suggestion.json").read_text())
    assert to_paste.items() <= suggestion["settings"].items()
    assert suggestion["predicted"]["step_seconds"] > 0
    assert suggestion["candidates"][0]["mp_parameters"] == suggestion["predicted"]["mp_parameters"]
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert not (tmp_path / "trained").exists()
