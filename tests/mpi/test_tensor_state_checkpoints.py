# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tensor-parallel jobs with sharded and 16-bit state: any job goes on from them."""

import functools
import itertools
import os

import pytest
import torch
from jobs import hugging_face_jobs
from jobs import tensor_state_jobs as jobs
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_full_state_dict_from_sharded_data_parallel_checkpoint,
)

STEPS, MORE = 2, 2
LONG = os.environ.get("SMP_LONG_TESTS") == "1"
BASE = {"ddp": True, "microbatches": 2, "auto_partition": False, "default_partition": 0,
        "sdp_gradient_clipping": 0, "sdp_param_persistence_threshold": 0}  # fmt: skip
SHARDED = {"sharded_data_parallel_degree": 2}
OPTIMIZER = {"shard_optimizer_state": True}
TENSOR = {"tensor_parallel_degree": 2}

WAYS = {
    "plain": (2, {}),
    "tensor": (2, TENSOR),
    "sharded": (2, SHARDED),
    "optimizer": (2, OPTIMIZER),
    "tensor + optimizer": (4, {**TENSOR, **OPTIMIZER}),
    "tensor + optimizer alone": (2, {**TENSOR, **OPTIMIZER}),
    "tensor + sharded": (4, {**TENSOR, **SHARDED}),
    "tensor + sharded, some persistent": (
        4, {**TENSOR, **SHARDED, "sdp_param_persistence_threshold": 7}
    ),
    "tensor + sharded, all persistent": (
        4, {**TENSOR, **SHARDED, "sdp_param_persistence_threshold": 10**6}  # the default
    ),
    "four tensor ranks + optimizer": (4, {"tensor_parallel_degree": 4, **OPTIMIZER}),
    "pipeline + tensor + optimizer": (8, {"partitions": 2, **TENSOR, **OPTIMIZER}),
}  # fmt: skip
#: Each way saves and goes on once or more.
FEW = [
    ("plain", "tensor + sharded"),
    ("tensor", "tensor + optimizer"),
    ("tensor + sharded", "tensor + sharded"),
    ("tensor + sharded", "four tensor ranks + optimizer"),
    ("tensor + sharded", "plain"),
    ("tensor + sharded, some persistent", "tensor + sharded"),
    ("tensor + sharded", "tensor + sharded, some persistent"),
    ("tensor + sharded, all persistent", "tensor + optimizer"),
    ("tensor + optimizer", "tensor + sharded, all persistent"),
    ("tensor + optimizer", "sharded"),
    ("tensor + optimizer", "tensor + optimizer alone"),
    ("four tensor ranks + optimizer", "optimizer"),
    ("tensor + optimizer alone", "pipeline + tensor + optimizer"),
    ("pipeline + tensor + optimizer", "tensor + optimizer"),
]


STATE_WAYS = ["tensor + optimizer", "tensor + optimizer alone", "tensor + sharded"]


def settings(way, **others):
    ranks, config = WAYS[way]
    return ranks, {**BASE, **config, **others}


def assert_goes_on(results, ranks, config):
    values, gradients = jobs.alone(STEPS + MORE, 2 * ranks // config.get("partitions", 1))
    for rank, seen in enumerate(results):
        for name, value in values.items():
            assert torch.equal(seen["model"][name].to(value.dtype), value), (rank, name)
        for name, gradient in gradients.items():
            assert torch.equal(seen["gradients"][name], gradient), (rank, name)


@pytest.fixture(scope="module")
def saved(pool, tmp_path_factory):
    """Folders that jobs wrote; made when asked for."""
    made = {}

    def by(way, **extra):
        key = (way, *extra.items())
        if key not in made:
            ranks, config = settings(way, **extra)
            made[key] = tmp_path_factory.mktemp("saved")
            pool(ranks).run("tensor_state_jobs:save_after", config, str(made[key]), STEPS)
        return made[key]

    return by


@pytest.mark.parametrize(("before", "after"), list(itertools.product(WAYS, WAYS)) if LONG else FEW)
def test_every_way_of_training_goes_on_from_every_other(pool, saved, before, after):
    ranks, config = settings(after)

    results = pool(ranks).run("tensor_state_jobs:resume_after", config, str(saved(before)), MORE)

    assert_goes_on(results, ranks, config)


@pytest.mark.parametrize("precision", ["fp16", "bf16"] if LONG else ["fp16"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("tensor + sharded", "optimizer"), ("tensor", "four tensor ranks + optimizer")],
)
def test_16_bit_training_goes_on_with_another_degree(pool, saved, before, after, precision):
    ranks, config = settings(after, **{precision: True})

    results = pool(ranks).run(
        "tensor_state_jobs:resume_after",
        config,
        str(saved(before, **{precision: True})),
        MORE,
    )

    assert_goes_on(results, ranks, config)


def test_files_say_the_ranks_they_are_of(saved):
    folder = saved("tensor + sharded") / "saved_partial"

    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "model_0_0.pt", "model_0_1.pt", "optimizer_0_0_0.pt",
        "optimizer_0_0_1.pt", "optimizer_0_1_0.pt", "optimizer_0_1_1.pt", "partition.json",
        "slices.json", "user_content.pt",
    ]  # fmt: skip


def test_shards_of_slices_become_a_whole_model_without_a_job(saved):
    found = get_full_state_dict_from_sharded_data_parallel_checkpoint(
        str(saved("tensor + sharded"))
    )

    wanted, _ = jobs.alone(STEPS, 1)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


def test_a_whole_model_is_what_plain_pytorch_reads(pool, tmp_path):
    ranks, config = settings("tensor + sharded")
    pool(ranks).run("tensor_state_jobs:save_after", config, str(tmp_path), STEPS, partial=False)

    entries = torch.load(tmp_path / "saved")  # bare: plain containers

    wanted, _ = jobs.alone(STEPS, 1)
    for name, value in wanted.items():
        assert torch.equal(entries[name], value), name
    ranks, config = settings("tensor + optimizer")
    results = pool(ranks).run(
        "tensor_state_jobs:resume_after", config, str(tmp_path), 0, partial=False
    )
    for seen in results:
        for name, value in wanted.items():
            assert torch.equal(seen["model"][name], value), name


@pytest.mark.parametrize(
    ("way", "how"),
    list(itertools.product(STATE_WAYS, ["whole", "gathered", "own"]))
    if LONG
    else [(STATE_WAYS[0], "whole"), (STATE_WAYS[0], "gathered"), (STATE_WAYS[1], "own"),
          (STATE_WAYS[2], "whole")],
)  # fmt: skip
def test_optimizers_take_their_own_state_dicts(pool, way, how):
    ranks, config = settings(way)

    for wanted, seen in pool(ranks).run("tensor_state_jobs:state_dicts", config, how, 2):
        for part in ("model", "gradients"):
            for name, value in wanted[part].items():
                assert torch.equal(seen[part][name], value), (part, name)


@functools.cache
def plain(kind):
    return hugging_face_jobs.train_alone(kind)


@pytest.mark.parametrize(("kind", "before", "after"), [
    ("gpt2", "tensor + sharded", "optimizer"), ("bert", "optimizer", "tensor + sharded"),
], ids=str)  # fmt: skip
def test_a_hugging_face_model_goes_on_under_names_of_its_own(pool, tmp_path, kind, before, after):
    """Tied and renamed parameters, which have other shapes and numbers in the other job."""
    matching = {"_match_weights": True, "auto_partition": True}
    ranks, config = settings(before, **matching)
    pool(ranks).run("hugging_face_jobs:train_and_save", config, kind, str(tmp_path), True)
    ranks, config = settings(after, **matching)
    results = pool(ranks).run(
        "hugging_face_jobs:resume_and_train", config, kind, str(tmp_path), True
    )

    wanted = plain(kind)
    for seen in results:  # as close as in test_hugging_face.py
        torch.testing.assert_close(
            torch.tensor(seen["losses"]), torch.tensor(wanted["losses"]), rtol=0, atol=1e-6
        )
        for name, value in wanted["state"].items():
            torch.testing.assert_close(seen["state"][name], value, rtol=0, atol=1e-5, msg=name)
