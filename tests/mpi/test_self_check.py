# SPDX-License-Identifier: Apache-2.0
"""SMP_SELF_CHECK: agrees under every composition, and names what is planted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rank_pool import RankPool

Pool = Callable[[int], RankPool]
PIPELINE = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2}
REPLICAS = {"ddp": True, "microbatches": 2}
TENSOR = {"tensor_parallel_degree": 2, "ddp": True, "microbatches": 2}
SHARDED = {"sharded_data_parallel_degree": 2, "ddp": True, "microbatches": 2}
STATE = {"shard_optimizer_state": True, "ddp": True, "microbatches": 2}


@pytest.mark.parametrize(
    ("ranks", "settings", "options"),
    [
        pytest.param(1, {"microbatches": 4}, {"drop": 0.3}, id="one process"),
        pytest.param(1, {"bf16": True}, {"drop": 0.3}, id="masters"),
        pytest.param(2, REPLICAS, {"drop": 0.3}, id="replicas"),
        pytest.param(2, REPLICAS, {"hook": "of a gradient"}, id="replicas, hook"),
        pytest.param(2, STATE, {"hook": "of a gradient"}, id="sharded state, hook"),
        pytest.param(2, REPLICAS, {"passes": 2, "clip": True}, id="several backwards"),
        pytest.param(2, REPLICAS, {"wrapped": False, "optimizer": "SGD"}, id="plain optimizer"),
        pytest.param(2, PIPELINE, {"clip": True}, id="pipeline"),
        pytest.param(2, PIPELINE, {"drop": 0.3, "norm": False}, id="pipeline, dropout"),
        pytest.param(2, {**PIPELINE, "bf16": True}, {}, id="pipeline, masters"),
        pytest.param(2, TENSOR, {"norm": False}, id="slices"),
        pytest.param(2, TENSOR, {"sliced": False, "drop": 0.3}, id="slices, dropout"),
        pytest.param(2, {**TENSOR, "prescaled_batch": True}, {}, id="slices of one batch"),
        pytest.param(2, {**TENSOR, "bf16": True}, {}, id="slices, masters"),
        pytest.param(2, SHARDED, {"drop": 0.3, "clip": True}, id="shards"),
        pytest.param(2, {**SHARDED, "bf16": True}, {"passes": 2}, id="shards, masters"),
        pytest.param(2, {**SHARDED, "fp16": True}, {}, id="shards, loss scale"),
        pytest.param(2, SHARDED, {"optimizer": "FusedLAMB"}, id="shards, whole norms"),
        pytest.param(2, STATE, {"optimizer": "FusedAdam"}, id="sharded state"),
    ],
)
def test_a_sound_job_agrees(
    pool: Pool, ranks: int, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    lines = pool(ranks).run("self_check_jobs:train", settings, **options)

    assert re.match("2 steps agree with plain PyTorch in one process: results to", lines[0])
    assert "gradients of 14 parameters" in lines[0]
    updates = 1 if options.get("passes") == 2 else 2
    assert f"weights after {updates} update" in lines[0]
    assert "not compared" not in lines[0]


@pytest.mark.parametrize(
    "settings",
    [REPLICAS, PIPELINE, TENSOR, SHARDED, STATE],
    ids=["replicas", "pipeline", "slices", "shards", "state"],
)
@pytest.mark.parametrize(("several", "updates"), [("halves", 4), ("alternating", 3), ("some", 2)])
def test_several_optimizers_agree(
    pool: Pool, settings: dict[str, Any], several: str, updates: int
) -> None:
    line = pool(2).run("self_check_jobs:train", settings, several=several)[0]

    assert "gradients of 14 parameters" in line
    assert f"weights after {updates} updates" in line
    assert "not compared" not in line


@pytest.mark.parametrize(
    ("fault", "settings", "options", "named"),
    [
        ("lost_reduction", REPLICAS, {}, "gradient of parameter first.weight .*lost reduction"),
        ("wrong_divisor", REPLICAS, {}, "first.weight .*2 times.*mean over the"),
        ("wrong_divisor", {**SHARDED, "bf16": True}, {}, "first.weight .*2 times.*mean over the"),
        ("swapped_parameters", REPLICAS, {}, "first.bias .*it is the gradient of norm.bias"),
        ("lost_gradient", PIPELINE, {}, "parameter head.weight .*lost gradient"),
        ("lost_gradient", STATE, {}, "parameter head.weight .*lost gradient"),
        ("stale_weight", PIPELINE, {}, "from module wide on .*stale or other weights"),
        ("stale_weight", REPLICAS, {}, "from module wide on .*stale or other weights"),
        ("missing_microbatch", REPLICAS, {}, "first.weight .*part of the batch that is missing"),
        ("wrong_rate", {**PIPELINE, "bf16": True}, {}, "after the update .*another learning rate"),
        ("rate_of_one_rank", PIPELINE, {}, "wide.weight .*another learning rate.* 3 times"),
        ("rate_of_one_rank", STATE, {}, "narrow.weight .*other learning rates.* 1 and 3 times"),
        ("not_updated", PIPELINE, {}, "narrow.weight after the update .*does not change"),
        ("narrow_sums", {**REPLICAS, "bf16": True}, {}, "first.weight .*made in fewer bits"),
        ("narrow_sums", REPLICAS, {}, "first.weight .*made in fewer bits"),
        ("other_slices", TENSOR, {}, "wide.weight .*the same numbers at other places"),
        ("drifting_copy", REPLICAS, {}, "frozen.bias has other values on rank 1"),
    ],
)
def test_a_planted_fault_is_named(
    pool: Pool, fault: str, settings: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    texts = pool(2).run("self_check_jobs:train", settings, fault, **options)

    assert len(set(texts)) == 1, "all ranks raise the same"
    assert re.search(f"checked step 1 .*{named}", texts[0]), texts[0]


@pytest.mark.parametrize(
    ("settings", "options", "left_out"),
    [
        (PIPELINE, {"does": "draws"}, "its function draws random numbers"),
        (REPLICAS, {"does": "sums"}, "its function calls c10d::allreduce of torch.distributed"),
        (REPLICAS, {"optimizer": "Nested"}, "after an update: Nested.inner holds"),
        (SHARDED, {"hook": "of a sum"}, "gradients: parameter first.weight has a hook behind"),
        (STATE, {"hook": "of the optimizer"}, "after an update: hooks of AdamW's step"),
        (REPLICAS, {"optimizer": "Noisy"}, "after an update: Noisy draws random numbers"),
    ],
)
def test_what_has_no_plain_counterpart_is_named(
    pool: Pool, settings: dict[str, Any], options: dict[str, Any], left_out: str
) -> None:
    line = pool(2).run("self_check_jobs:train", settings, **options)[0]

    assert left_out in line.split("; not compared: ")[1], line


def test_a_function_may_draw_in_one_process(pool: Pool) -> None:
    line = pool(1).run("self_check_jobs:train", {"microbatches": 2}, does="draws")[0]

    assert "not compared" not in line


def test_gradients_of_parameters_besides_the_model_stay_as_they_are(pool: Pool) -> None:
    for found, wanted in pool(1).run("self_check_jobs:outside", {"microbatches": 2}):
        torch.testing.assert_close(found, wanted)
