# SPDX-License-Identifier: Apache-2.0
"""SMPTrainer on two ranks beside Transformers' Trainer in one process: the same losses, gradients'
norms, predictions and weights; and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jobs import trainer_jobs

pytest.importorskip("transformers", reason="the Trainer is of transformers")

WAYS = {
    "pipeline": {"partitions": 2, "microbatches": 4, "ddp": True},
    "tensor": {"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True},
    "sharded": {
        "sharded_data_parallel_degree": 2,
        "sdp_param_persistence_threshold": 40,
        "ddp": True,
    },
    "replicas": {"microbatches": 2, "ddp": True},
}


def _long(*values: Any) -> Any:
    """A case that ci/test --long adds."""
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trainer_jobs.alone(str(tmp_path_factory.mktemp("alone")))


def values(result: dict[str, Any], key: str) -> list[float]:
    return [entry[key] for entry in result["log"] if key in entry]


def assert_same(seen: dict[str, Any], expected: dict[str, Any], logged: float = 1e-6) -> None:
    """``logged``: to what the log rounds."""
    loose = 1e-6
    for key, count in (("loss", 6), ("grad_norm", 6), ("learning_rate", 6), ("eval_loss", 3)):
        near = pytest.approx(values(expected, key), rel=loose, abs=logged)
        assert values(seen, key) == near, key
        assert len(values(expected, key)) == count
    for key in ("test_loss", "evaluated"):
        assert seen[key] == pytest.approx(expected[key], rel=loose)
    np.testing.assert_array_equal(seen["labels"], expected["labels"])
    np.testing.assert_allclose(seen["predictions"], expected["predictions"], atol=100 * loose)
    assert seen["state"].keys() == expected["state"].keys()
    for name, value in expected["state"].items():
        torch.testing.assert_close(seen["state"][name], value, rtol=0, atol=10 * loose)


@pytest.mark.parametrize("way", WAYS)
def test_it_trains_evaluates_and_predicts_as_one_process(
    pool: Any, expected: dict[str, Any], tmp_path: Path, way: str
) -> None:
    results = pool(2).run("trainer_jobs:train", WAYS[way], str(tmp_path))

    assert_same(results[0], expected)


@pytest.mark.parametrize("way", ["sharded", *(_long(way) for way in WAYS if way != "sharded")])
def test_a_resumed_run_goes_on_as_if_never_stopped(
    pool: Any, expected: dict[str, Any], tmp_path: Path, way: str
) -> None:
    pool(2).run("trainer_jobs:train", WAYS[way], str(tmp_path))

    results = pool(2).run("trainer_jobs:resumed", WAYS[way], str(tmp_path), "checkpoint-3")

    assert_same(results[0], expected)
    files = {path.name for path in (tmp_path / "checkpoint-3").iterdir()}
    assert {"model.safetensors", "config.json", "scheduler.pt", "smp_partial",
            "trainer_state.json", "rng_state_0.pth", "rng_state_1.pth"} <= files  # fmt: skip


def test_a_checkpoint_goes_on_in_another_layout(
    pool: Any, expected: dict[str, Any], tmp_path: Path
) -> None:
    pool(2).run("trainer_jobs:train", WAYS["pipeline"], str(tmp_path))

    results = pool(2).run("trainer_jobs:resumed", WAYS["tensor"], str(tmp_path), "checkpoint-3")

    assert_same(results[0], expected)


@pytest.mark.parametrize("way", ["pipeline", _long("sharded")])
def test_checkpoints_may_hold_the_model_in_parts_only(
    pool: Any, expected: dict[str, Any], tmp_path: Path, way: str
) -> None:
    replicas = 1 if way == "pipeline" else 2
    pool(2).run("trainer_jobs:in_parts_only", WAYS[way], str(tmp_path), replicas)
    assert not (tmp_path / "checkpoint-3" / "model.safetensors").exists()

    results = pool(2).run(
        "trainer_jobs:in_parts_only", WAYS[way], str(tmp_path), replicas, "checkpoint-3"
    )

    assert_same(results[0], expected)


@pytest.mark.parametrize(
    ("way", "adapt"),
    [("pipeline", "class"), _long("pipeline", "object"), ("replicas", "object")],
)
def test_a_scripts_own_trainer_and_loss_are_adapted(
    pool: Any, tmp_path: Path, way: str, adapt: str
) -> None:
    replicas = 1 if way == "pipeline" else 2

    results = pool(2).run("trainer_jobs:own_loss", WAYS[way], str(tmp_path), adapt, replicas)

    assert_same(results[0], trainer_jobs.own_loss(str(tmp_path / "alone"), "no", 1))


@pytest.mark.parametrize(("way", "recomputed"), [("pipeline", True), ("replicas", False)])
def test_batches_that_do_not_divide_are_trained_and_evaluated(
    pool: Any, tmp_path: Path, way: str, recomputed: bool
) -> None:
    """22 rows in batches of 8, evaluated on 11."""
    replicas = 1 if way == "pipeline" else 2

    losses = pool(2).run(
        "trainer_jobs:classified", WAYS[way], str(tmp_path), replicas, True, recomputed
    )

    alone = trainer_jobs.classified(str(tmp_path / "alone"), 1, False)
    if way == "pipeline":
        assert losses[0] == pytest.approx(alone, abs=1e-6)
    else:  # the last batch of training is filled up, as Accelerate does it
        assert losses[0][:2] == pytest.approx(alone[:2], abs=1e-6)


def test_what_does_not_go_is_named(pool: Any, tmp_path: Path) -> None:
    for said in pool(2).run("trainer_jobs:refusals", WAYS["pipeline"], str(tmp_path)):
        fp16, tuned, own_step, no_trainer = said
        assert '"fp16": true in mp_parameters' in fp16
        assert "auto_find_batch_size=True" in tuned
        assert "OwnStep replaces the Trainer's training_step" in own_step
        assert "got 3; expected transformers.Trainer" in no_trainer
