# SPDX-License-Identifier: Apache-2.0
"""The example job on real handwriting: four processes learn what one learns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import sklearn.datasets
import torch

from tests.mpi.launching import Outcome, run_alone, run_mpi, together

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"


def variables(folder: Path, **settings: object) -> dict[str, str]:
    channel = folder / "train"
    channel.mkdir(parents=True)
    shutil.copy(Path(sklearn.datasets.__path__[0]) / "data" / "digits.csv.gz", channel)
    return {
        "SM_CHANNEL_TRAIN": str(channel),
        "SM_MODEL_DIR": str(folder),
        "SM_OUTPUT_DATA_DIR": str(folder),
        "SM_HP_MP_PARAMETERS": json.dumps(settings),
    }


def curve(folder: Path, outcome: Outcome) -> dict[str, object]:
    assert outcome.code == 0, outcome.output
    return json.loads((folder / "curve.json").read_text())


@pytest.mark.parametrize(
    ("job", "of_losses", "of_weights"),
    [
        # Other sums of the same terms: 1.5e-6 seen after 264 steps.
        pytest.param((str(EXAMPLE),), 1e-5, 1e-4, id="float32"),
        pytest.param(
            ("in_double.py", str(EXAMPLE)), 1e-12, 1e-12, id="float64", marks=pytest.mark.long
        ),
    ],
)
def test_pipeline_times_data_learns_digits_along_the_curve_of_one_process(
    tmp_path: Path, job: tuple[str, ...], of_losses: float, of_weights: float
) -> None:
    one, four = tmp_path / "one", tmp_path / "four"

    settings = {"microbatches": 4, "pipeline_parallel_degree": 2, "ddp": True}
    outcomes = together(
        lambda: run_alone(*job, **variables(one, microbatches=4)),
        lambda: run_mpi(4, *job, **variables(four, **settings)),
    )
    alone, split = curve(one, outcomes[0]), curve(four, outcomes[1])

    assert split["accuracy"] >= 0.95
    assert len(split["loss"]) == len(alone["loss"]) > 200
    for ours, expected in zip(split["loss"], alone["loss"], strict=True):
        assert abs(ours - expected) <= of_losses * abs(expected)
    plain = torch.load(four / "model.pt")
    expected_state = torch.load(one / "model.pt")
    assert plain.keys() == expected_state.keys()
    for name, value in expected_state.items():
        torch.testing.assert_close(plain[name], value, rtol=of_weights, atol=of_weights)
