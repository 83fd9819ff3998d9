# SPDX-License-Identifier: Apache-2.0
"""Scripts in the style of published ones, written for CUDA, run unchanged under the launcher."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from tests.mpi.launching import agrees_with_plain_torch, run_alone, run_mpi, together

HERE = Path(__file__).parent / "published"
RUNNER = str(HERE / "run_as_cuda.py")


def run(ranks: int, script: str, out: Path, *arguments: str, **settings: object):
    """The results of the script, which has to end well."""
    out.mkdir(parents=True, exist_ok=True)
    variables = {"SM_HP_MP_PARAMETERS": json.dumps(settings), "SMP_SELF_CHECK": "2"}
    options = (str(HERE / script), "--out", str(out), *arguments)
    outcome = (
        run_alone(RUNNER, *options, **variables)
        if ranks == 1
        else run_mpi(ranks, RUNNER, *options, **variables)
    )
    assert outcome.code == 0, outcome.output
    assert agrees_with_plain_torch(outcome), outcome.output
    return json.loads((out / "results.json").read_text())


@pytest.mark.long
def test_digits_script_learns_on_four_processes_as_on_one(tmp_path: Path) -> None:
    alone, split = together(
        lambda: run(1, "mnist.py", tmp_path / "1", "--epochs", "1", microbatches=4),
        lambda: run(2, "mnist.py", tmp_path / "2", "--epochs", "1", microbatches=4, partitions=2,
                    ddp=True, pipeline="interleaved", optimize="speed"),
    )  # fmt: skip
    # Adadelta without data parallelism: the same sums, but for the order of the microbatches.
    for ours, expected in zip(split[0][2], alone[0][2], strict=True):
        assert ours == pytest.approx(expected, rel=1e-3)
    four = run(4, "mnist.py", tmp_path / "4", "--epochs", "2", microbatches=4, partitions=2,
               ddp=True, placement_strategy="spread")  # fmt: skip

    assert len({(loss, accuracy) for loss, accuracy, _ in four}) == 1, "all ranks test alike"
    assert four[0][1] >= 0.9
    assert sorted(path.name for path in (tmp_path / "4").glob("checkpoint*")) == [
        "checkpoint.pt_0",
        "checkpoint.pt_1",
    ]
    resumed = run(4, "mnist.py", tmp_path / "5", "--epochs", "1", "--amp", "1", "--resume",
                  str(tmp_path / "4" / "checkpoint.pt"), microbatches=4, partitions=2, ddp=True,
                  placement_strategy="spread")  # fmt: skip
    assert resumed[0][1] >= four[0][1] - 0.02, "goes on from where it was, in mixed precision"
    assert resumed[0][2][0] < four[0][2][0] / 4


@pytest.fixture(scope="module")
def language_model_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    run(1, "gpt.py", folder, partitions=1)
    return folder


@pytest.mark.parametrize(
    ("ranks", "arguments", "settings"),
    [
        pytest.param(2, ("--strategy", "contiguous"), {"partitions": 2}, marks=pytest.mark.long),
        (4, ("--manual", "1", "--strategy", "group_2"), {"partitions": 2}),
    ],
)
def test_language_model_follows_the_curve_of_one_process_and_resumes(
    language_model_alone: Path,
    tmp_path: Path,
    ranks: int,
    arguments: tuple[str, ...],
    settings: dict[str, object],
) -> None:
    folder = str(tmp_path / "checkpoints")
    alone = json.loads((language_model_alone / "results.json").read_text())
    assert alone["losses"][-1] < alone["losses"][0] * 0.8

    split = run(ranks, "gpt.py", tmp_path / "2", *arguments, "--checkpoints", folder,
                "--save_at", "6", **settings)  # fmt: skip
    resumed, alone_resumed = together(
        lambda: run(ranks, "gpt.py", tmp_path / "3", *arguments, "--checkpoints", folder,
                    "--resume", "1", **settings),
        lambda: run(1, "gpt.py", tmp_path / "4", "--checkpoints", folder, "--resume", "1",
                    partitions=1),
    )  # fmt: skip

    # Doubles: only the order of sums differs.
    assert split["losses"] == pytest.approx(alone["losses"], rel=1e-9)
    assert resumed["losses"] == pytest.approx(alone["losses"][6:], rel=1e-9)
    assert alone_resumed["losses"] == pytest.approx(alone["losses"][6:], rel=1e-9)
    if ranks == 2:
        assert split["held"] == pytest.approx(alone["held"], rel=1e-9)
    whole = torch.load(tmp_path / "2" / "whole" / "fullmodel.pt")
    expected = torch.load(language_model_alone / "whole" / "fullmodel.pt")
    assert whole.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(whole[name], value, rtol=1e-6, atol=1e-8)


def test_language_model_on_four_partitions_is_predicted_to_wait_less_with_zero_bubble(
    language_model_alone: Path, tmp_path: Path
) -> None:
    alone = json.loads((language_model_alone / "results.json").read_text())
    predicted = {}
    for pipeline in ("interleaved", "zero_bubble"):
        file = tmp_path / f"{pipeline}.json"
        split = run(4, "gpt.py", tmp_path / pipeline, partitions=4, pipeline=pipeline,
                    partition_file=str(file))  # fmt: skip
        assert split["losses"] == pytest.approx(alone["losses"], rel=1e-9)
        found = re.search(r"predicted step ([\d.]+) ms", json.loads(file.read_text())["summary"])
        assert found is not None
        predicted[pipeline] = float(found[1])

    assert predicted["zero_bubble"] < 0.95 * predicted["interleaved"], predicted
