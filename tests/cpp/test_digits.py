# SPDX-License-Identifier: Apache-2.0
"""examples/digits_cpp against the Python job of the same model: in one process and in four."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sklearn.datasets

from tests.cpp.commands import HERE, succeed
from tests.cpp.jobs import run_job

EXAMPLE = HERE.parents[1] / "examples/digits_cpp"
EPOCHS = 2
STEPS = 22  # in an epoch
FOUR = {
    "microbatches": 4,
    "pipeline_parallel_degree": 2,
    "ddp": True,
    "deterministic_server": True,
}


@pytest.fixture(scope="module")
def program(build) -> Path:
    return build(EXAMPLE) / "digits"


@pytest.fixture(scope="module")
def code(program, tmp_path_factory) -> Path:
    """A folder with the programs of both languages."""
    folder = tmp_path_factory.mktemp("code")
    shutil.copy(program, folder / "digits")
    shutil.copy(HERE / "digits.py", folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    packed = Path(sklearn.datasets.__path__[0]) / "data/digits.csv.gz"
    folder.joinpath("digits.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


SETTINGS = {
    "one": {"microbatches": 4},
    "four": FOUR,
    "bf16": {"microbatches": 4, "bf16": True},
    "four_bf16": {**FOUR, "bf16": True, "shard_optimizer_state": True},
    "shards": {
        "microbatches": 2,
        "ddp": True,
        "sharded_data_parallel_degree": 2,
        "sdp_param_persistence_threshold": 100,
        "deterministic_server": True,
        "bf16": True,
    },
}


@dataclass(frozen=True)
class Job:
    folder: Path
    losses: tuple[str, ...]


@dataclass
class Jobs:
    """Jobs of the program of either language, by the launcher. Each is run once."""

    code: Path
    data: Path
    folder: Path
    ended: dict[tuple[object, ...], Job] = field(default_factory=dict)

    def run(
        self,
        program: str,
        settings: str,
        *,
        epochs: int = EPOCHS,
        after: Job | None = None,
        metrics: bool = False,
    ) -> Job:
        """A job with ``SETTINGS[settings]``. It goes on from the checkpoints of ``after``."""
        key = (program, settings, epochs, after, metrics)
        if key not in self.ended:
            job = self.folder / str(len(self.ended))
            variables = {"SMP_METRICS": str(job / "metrics.jsonl")} if metrics else {}
            done = run_job(
                job, self.code, program, SETTINGS[settings],
                processes=4 if "ddp" in SETTINGS[settings] else 1, data=self.data,
                hyperparameters={"epochs": epochs}, after=after and after.folder, **variables,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            file = "curve0.txt" if program.endswith(".py") else "curve.txt"
            losses = tuple((job / "output/data" / file).read_text().split())
            self.ended[key] = Job(job, losses)
        return self.ended[key]


@pytest.fixture(scope="module")
def jobs(code, data, tmp_path_factory) -> Jobs:
    return Jobs(code, data, tmp_path_factory.mktemp("jobs"))


@pytest.mark.parametrize("settings", SETTINGS)
def test_losses_are_those_of_the_python_job_to_the_bit(jobs, settings):
    losses = jobs.run("digits", settings).losses

    assert losses == jobs.run("digits.py", settings).losses
    assert len(losses) == EPOCHS * STEPS
    assert float(losses[-1]) < 0.8 * float(losses[0])


@pytest.mark.parametrize("settings", ["four", "four_bf16", "shards"])
def test_jobs_go_on_from_checkpoints_of_either_language(jobs, settings):
    both = jobs.run("digits", settings).losses

    for first, second in (("digits", "digits"), ("digits", "digits.py"), ("digits.py", "digits")):
        begun = jobs.run(first, settings, epochs=1)
        assert begun.losses == both[:STEPS]
        assert jobs.run(second, settings, after=begun).losses == both[STEPS:], (first, second)


@pytest.mark.parametrize(("saved", "loaded"), [("four", "shards"), ("shards", "four_bf16")])
def test_a_checkpoint_fits_jobs_of_other_degrees(jobs, saved, loaded):
    begun = jobs.run("digits", saved, epochs=1)

    ours = jobs.run("digits", loaded, after=begun).losses

    assert len(ours) == STEPS
    assert ours == jobs.run("digits.py", loaded, after=begun).losses


@pytest.mark.parametrize(
    ("settings", "lost", "said"),
    [
        ("four", "optimizer_1_0.pt", r'no optimizer state of ".*": optimizer_1_0.pt is missing'),
        ("four", "optimizer_*", r"no optimizer state: optimizer_0_0.pt, which its manifest"),
        ("four_bf16", "optimizer_0_0_1.pt", r"holds 1 of 2 files optimizer_0_0_\*\.pt"),
        ("four_bf16", "optimizer_*", r"holds 0 of the files optimizer_0_0_\*\.pt"),
    ],
)
def test_a_checkpoint_without_all_its_files_is_refused(jobs, tmp_path, settings, lost, said):
    begun = jobs.run("digits", settings, epochs=1)
    shutil.copytree(begun.folder / "checkpoints", tmp_path / "first/checkpoints")
    for file in (tmp_path / "first/checkpoints/epoch-1_partial").glob(lost):
        file.unlink()

    done = run_job(
        tmp_path / "second", jobs.code, "digits", SETTINGS[settings],
        processes=4, data=jobs.data, hyperparameters={"epochs": 2}, after=tmp_path / "first",
    )  # fmt: skip

    assert done.returncode != 0
    assert re.search(said, done.stderr), done.stderr


def test_the_program_has_no_python_in_it(program):
    assert "libpython" not in succeed("ldd", program)


def told(job: Path) -> list[dict[str, object]]:
    """Steps in the metrics, without times and memory."""
    lines = map(json.loads, (job / "metrics.jsonl").read_text().splitlines())
    return [
        {name: line[name] for name in ("step", "evaluation", "loss", "loss_ranks",
                                       "global_batch_size")}
        for line in lines
    ]  # fmt: skip


def report_of(job: Path) -> dict[str, Any]:
    page = (job / "output/data/report.html").read_text()
    found = re.search(r'id="job">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_metrics_and_the_report_say_what_they_say_of_the_python_job(jobs):
    ours, theirs = (
        jobs.run(program, "four", epochs=1, metrics=True).folder
        for program in ("digits", "digits.py")
    )

    trained = [line for line in told(ours) if not line["evaluation"]]
    assert trained == [line for line in told(theirs) if not line["evaluation"]]
    assert {line["loss_ranks"] for line in trained} == {2}, "the mean over both replicas"
    reports = [report_of(ours), report_of(theirs)]
    places = [
        [(rank["rank"], rank["stage"], rank["rdp"]) for rank in report["ranks"]]
        for report in reports
    ]
    assert places[0] == places[1] == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]
    for fact in ("stages", "microbatches"):
        assert reports[0]["card"][fact] == reports[1]["card"][fact], fact
    assert reports[0]["card"]["stages"] == 2
    assert all(rank["memory_kinds"]["parameters"] > 0 for rank in reports[0]["ranks"])
    assert [event[2] for event in reports[0]["events"]] == ["checkpoint"]


def test_rank_0_tells_how_the_steps_go(code, data, tmp_path):
    done = run_job(
        tmp_path / "job", code, "digits", {}, data=data, hyperparameters={"epochs": 1}
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert re.search(r"step 1: loss \d\.\d+, \d+ samples/s, .*peak \d", done.stderr), done.stderr
