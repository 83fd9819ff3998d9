# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of SMP v2: a job that resumes is the job that went on, to the bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from transformers import AutoModelForCausalLM

PAIRS = {"hybrid_shard_degree": 2}
KINDS = ["sharded", "async_sharded", "local", "async_local", "older"]


def test_the_optimizer_comes_back_as_it_was_where_pytorch_reads_another_one(
    pool: Any, tmp_path: Path
) -> None:
    """PyTorch shards what it reads over all ranks, whatever the model's group, and says nothing.
    If this fails since its numbers are right now, its function can be used again."""
    job = pool(4)
    unbroken = job.run(
        "sagemaker_checkpoint_jobs:saved", {}, PAIRS, "HYBRID_SHARD", str(tmp_path), "sharded"
    )

    ours, theirs = (
        job.run("sagemaker_checkpoint_jobs:resumed", {}, PAIRS, "HYBRID_SHARD", str(tmp_path), kind)
        for kind in ("sharded", "by PyTorch")
    )

    for rank in range(4):
        assert ours[rank] == unbroken[rank][0]
        assert theirs[rank][0] == unbroken[rank][0][0]  # the values of the model are right
        assert theirs[rank][1] != unbroken[rank][0][1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("config", "strategy", "orig_params"),
    [(PAIRS, "HYBRID_SHARD", True), (PAIRS, "FULL_SHARD", False), ({}, "FULL_SHARD", True)],
)
def test_a_resumed_job_is_the_unbroken_one_to_the_bit(
    pool: Any, tmp_path: Path, kind: str, config: dict[str, int], strategy: str, orig_params: bool
) -> None:
    job = pool(4)
    unbroken = job.run(
        "sagemaker_checkpoint_jobs:saved",
        {},
        config,
        strategy,
        str(tmp_path),
        kind,
        orig_params=orig_params,
    )

    again = job.run(
        "sagemaker_checkpoint_jobs:resumed",
        {},
        config,
        strategy,
        str(tmp_path),
        kind,
        orig_params=orig_params,
    )

    assert again == [numbers for numbers, _, _ in unbroken]
    finished = [indices for _, _, indices in unbroken]
    if kind == "async_local":
        assert finished == [[0]] * 4
    elif kind == "async_sharded" and config:
        assert finished == [[0], [0], [], []]  # of the ranks that save


@pytest.mark.parametrize("kind", ["sharded", "async_sharded"])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 0), (1, 2)])
def test_a_sharded_checkpoint_is_read_with_any_degree(
    pool: Any, tmp_path: Path, kind: str, before: int, after: int
) -> None:
    def config(degree: int) -> dict[str, int]:
        return {"hybrid_shard_degree": degree}

    job = pool(4)
    unbroken = job.run(
        "sagemaker_checkpoint_jobs:saved", {}, config(before), "FULL_SHARD", str(tmp_path), kind
    )

    again = job.run(
        "sagemaker_checkpoint_jobs:resumed", {}, config(after), "FULL_SHARD", str(tmp_path), kind
    )

    for ours, (theirs, _, _) in zip(again, unbroken, strict=True):
        # Sums over ranks are made in another order: numbers of 32 bits differ in their last bits.
        assert torch.tensor(ours).allclose(torch.tensor(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["sharded", "async_sharded", "older"])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_another_degree_begins_with_the_same_state_to_the_bit(
    pool: Any, tmp_path: Path, kind: str, before: int, after: int
) -> None:
    job, folder = pool(4), str(tmp_path)
    configs = [{"hybrid_shard_degree": degree} for degree in (before, after)]
    job.run("sagemaker_checkpoint_jobs:saved", {}, configs[0], "HYBRID_SHARD", folder, kind)

    theirs, ours = (
        job.run("sagemaker_checkpoint_jobs:loaded", {}, config, "HYBRID_SHARD", folder, kind)
        for config in configs
    )

    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert sum(name.endswith(".exp_avg_sq") for name in one) == 22
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["sharded", "async_sharded", "local"])
@pytest.mark.parametrize("backends", [("gloo", "smddp"), ("smddp", "gloo")])
def test_a_job_resumes_over_another_backend_to_the_bit(
    pool: Any, tmp_path: Path, kind: str, backends: tuple[str, str]
) -> None:
    """Of two ranks, whose sums have one order."""
    job, folder = pool(2), str(tmp_path)
    unbroken, again = (
        job.run(f"sagemaker_checkpoint_jobs:{name}", {}, {}, "FULL_SHARD", folder, kind, backend)
        for name, backend in zip(("saved", "resumed"), backends, strict=True)
    )

    assert again == [numbers for numbers, _, _ in unbroken]


@pytest.mark.parametrize("kind", ["sharded", "async_sharded"])
def test_plain_dcp_reads_it_in_one_process(pool: Any, tmp_path: Path, kind: str) -> None:
    results = pool(4).run(
        "sagemaker_checkpoint_jobs:saved", {}, PAIRS, "HYBRID_SHARD", str(tmp_path / "one"), kind
    )
    values = results[0][1]
    content = {"model": {name: torch.zeros_like(one) for name, one in values.items()}}

    dcp.load(content, checkpoint_id=tmp_path / "one", no_dist=True)

    assert all(torch.equal(one, values[name]) for name, one in content["model"].items())


def test_pytorch_converts_a_sharded_checkpoint(pool: Any, tmp_path: Path) -> None:
    results = pool(4).run(
        "sagemaker_checkpoint_jobs:saved", {}, PAIRS, "HYBRID_SHARD", str(tmp_path / "one"),
        "async_sharded",
    )  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch"]

    subprocess.run(
        [*command, str(tmp_path / "one"), str(tmp_path / "one.pt")], check=True, timeout=120
    )

    content, values = torch.load(tmp_path / "one.pt", weights_only=False), results[0][1]
    assert content["model"].keys() == values.keys()
    assert all(torch.equal(one, values[name]) for name, one in content["model"].items())
    assert content["total_steps"] == 2


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_transformers_loads_a_whole_checkpoint(pool: Any, tmp_path: Path, kind: str) -> None:
    values = pool(2).run("sagemaker_delayed_jobs:saved_whole", {}, kind, str(tmp_path))[0]

    model, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)

    assert not any(found.values()), found
    assert model.state_dict().keys() == values.keys()
    assert all(torch.equal(one, values[name]) for name, one in model.state_dict().items())


def test_a_local_checkpoint_of_another_degree_is_refused(pool: Any, tmp_path: Path) -> None:
    job, folder = pool(4), str(tmp_path)
    job.run("sagemaker_checkpoint_jobs:saved", {}, PAIRS, "HYBRID_SHARD", folder, "async_local")

    errors = job.run(
        "sagemaker_checkpoint_jobs:refusal",
        {},
        {"hybrid_shard_degree": 4},
        "HYBRID_SHARD",
        folder,
        "async_local",
    )

    assert all("hybrid_shard_degree of the one that wrote it" in one for one in errors[:2])
    assert all("there is no checkpoint of DCP in" in one for one in errors[2:])


def test_a_whole_checkpoint_has_the_names_and_shapes_of_the_plain_model(
    pool: Any, tmp_path: Path
) -> None:
    has_values = pool(4).run("sagemaker_checkpoint_jobs:saved_whole", {}, PAIRS, str(tmp_path))

    read = torch.load(tmp_path / "pytorch_model.bin")
    assert has_values == [True, False, True, False]  # the first rank of each shard group
    assert {name: tuple(one.shape) for name, one in read.items()} == pool(4).run(
        "sagemaker_checkpoint_jobs:plain_shapes", {}
    )[0]
