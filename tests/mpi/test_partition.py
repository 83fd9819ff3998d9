# SPDX-License-Identifier: Apache-2.0
"""How ranks come to one partition: traced, by shapes only, from a file."""

import json
from pathlib import Path

import pytest
import torch
from jobs.models import make_batches, train_alone
from rank_pool import RankPool

STEPS, BATCH = 2, 16


def config(**others):
    settings = {"partitions": 2, "microbatches": 4, "deterministic_server": True}
    return {**settings, **others}


@pytest.fixture(scope="module")
def losses_alone():
    return train_alone(make_batches(STEPS, BATCH), 4, torch.float32)[0]


def check(results, losses_alone) -> list[list[str]]:
    """The modules of each rank; every module is on one, and the training is the right one."""
    for losses, _ in results:
        assert losses == losses_alone
    owned = [name for _, modules in results for name in modules]
    assert len(owned) == len(set(owned)), "each module on exactly one partition"
    assert all(modules for _, modules in results), "no partition is empty"
    return [modules for _, modules in results]


@pytest.mark.parametrize(
    "options",
    [
        {"trace_device": "cpu"},
        {"trace_device": "meta"},
        {"trace_device": "gpu", "trace_memory_usage": True},
        {"trace_device": "gpu", "trace_execution_times": True},
    ],
)
def test_every_way_of_tracing_trains_alike(pool, losses_alone, options):
    check(pool(2).run("partition_jobs:train", config(), STEPS, BATCH, **options), losses_alone)


def test_shapes_alone_lead_to_the_same_partition(pool, losses_alone):
    ranks = pool(2)
    traced = ranks.run("partition_jobs:train", config(), STEPS, BATCH, trace_device="cpu")
    skipped = ranks.run("partition_jobs:train", config(skip_tracing=True), STEPS, BATCH)

    assert check(traced, losses_alone) == check(skipped, losses_alone)


def test_setting_names_the_trace_device_unless_the_model_does(pool):
    ranks = pool(2)
    by_shapes = config(trace_device="meta")

    assert ranks.run("partition_jobs:train_noting", by_shapes)[0] == ["FakeTensor"]
    assert ranks.run("partition_jobs:train_noting", by_shapes, trace_device="cpu")[0] == ["Tensor"]


def test_model_that_needs_values_is_partitioned_by_parameters(pool, losses_alone):
    ranks = pool(2)
    results = ranks.run("partition_jobs:train_choosy", config(skip_tracing=True), STEPS, BATCH)

    check(results, losses_alone)
    assert "the model cannot be traced by shapes only; partitioned by parameters" in (
        ranks.log_text()
    )


@pytest.mark.parametrize(
    ("marked", "called", "expected"), [(0, 0, [6, 6]), (8, 0, [8, 4]), (0, 8, [8, 4])]
)
def test_recomputed_layers_count_by_what_they_keep(pool, marked, called, expected):
    settings = config(microbatches=1, memory_weight=1.0)

    # Of the two tensors that a layer keeps, its input and what tanh gives, the first is left.
    assert pool(2).run("partition_jobs:layers_here", settings, marked, called) == expected


def test_log_shows_the_assignment_and_how_even_it_is(pool):
    ranks = pool(2)
    ranks.run("partition_jobs:train", config(), 1, BATCH)

    log = ranks.log_text()
    last = log[log.rindex("Partition assignments:") :]
    assert "(root)=0" in last
    for text in (
        "Partition balance: 0: ",
        "Partition chosen: ",
        "Partition tree:",
        "% of the time",
    ):
        assert text in last
    assert "of the contiguous optimum; per microbatch" in last


def test_partition_survives_its_file_and_can_be_edited(pool, losses_alone, tmp_path: Path):
    file = tmp_path / "partition.json"
    ranks = pool(2)
    saved = ranks.run("partition_jobs:train", config(partition_file=str(file)), STEPS, BATCH)
    load = config(partition_file=str(file), load_partition=True)

    loaded = ranks.run("partition_jobs:train", load, STEPS, BATCH)
    assert check(loaded, losses_alone) == check(saved, losses_alone)

    decision = json.loads(file.read_text())
    for name in decision["modules"]:
        decision["modules"][name] = int(name.startswith(("blocks.1", "head")))
    file.write_text(json.dumps(decision))
    edited = check(ranks.run("partition_jobs:train", load, STEPS, BATCH), losses_alone)
    assert edited[1] == ["blocks.1", "blocks.1.inner", "blocks.1.norm", "head"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["modules"].pop("head"), 'does not name module "head"'),
        (lambda d: d["modules"].update(extra=0), 'names module "extra", which this model does not'),
        (lambda d: d["modules"].update(head=7), 'module "head" is on partition 7; expected 0 to 1'),
        (lambda d: d.update(partitions=1, modules=dict.fromkeys(d["modules"], 0)), "partitions=2"),
    ],
)
def test_file_that_does_not_fit_is_refused_on_all_ranks(pool, tmp_path: Path, change, message):
    file = tmp_path / "partition.json"
    settings = config(partition_file=str(file))
    pool(2).run("partition_jobs:train", settings, 1, BATCH)
    decision = json.loads(file.read_text())
    change(decision)
    file.write_text(json.dumps(decision))

    errors = pool(2).run(
        "partition_jobs:train", {**settings, "load_partition": True}, 1, BATCH, fails=True
    )

    assert all(message in error for error in errors), errors


def test_missing_file_is_named_on_all_ranks(pool, tmp_path: Path):
    settings = config(partition_file=str(tmp_path / "none.json"), load_partition=True)

    errors = pool(2).run("partition_jobs:train", settings, 1, BATCH, fails=True)

    assert all("none.json cannot be read: No such file" in error for error in errors)


def test_ranks_with_different_models_are_told_so(pool):
    errors = pool(2).run("partition_jobs:differ_by_rank", config(), fails=True)

    for error in errors:
        assert "rank 1 built another model than rank 0" in error
        assert 'does not name module "blocks.4"' in error


def test_published_algorithm_on_request(losses_alone):
    ranks = RankPool(2, {"SMP_PARTITIONER": "compat"})
    try:
        check(ranks.run("partition_jobs:train", config(), STEPS, BATCH), losses_alone)
        assert "Partition chosen: level by level" in ranks.log_text()
    finally:
        ranks.close()
