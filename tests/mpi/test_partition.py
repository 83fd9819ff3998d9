# SPDX-License-Identifier: Apache-2.0
"""Ways of ranks to one partition: traced, by shapes only, from a file."""

import json
import re
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

    # A layer keeps two tensors, its input and what tanh gives; of these the first is left.
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
    assert "has it, which says of itself: " in ranks.log_text()

    decision = json.loads(file.read_text())
    decision["modules"] = {"": 0, "blocks.1": 1, "blocks.1.norm": 0, "head": 1}
    file.write_text(json.dumps(decision))
    edited = check(ranks.run("partition_jobs:train", load, STEPS, BATCH), losses_alone)
    assert edited[1] == ["blocks.1", "blocks.1.inner", "head"], "what is below moves along"


def test_written_file_names_only_what_does_not_run_with_its_parent(pool, tmp_path: Path):
    file = tmp_path / "partition.json"
    pool(2).run("partition_jobs:train", config(partition_file=str(file)), 1, BATCH)

    written = json.loads(file.read_text())
    assert "predicted step" in written["summary"]
    modules = written["modules"]
    assert modules[""] == 0 and set(modules.values()) == {0, 1}
    parents = [max((other for other in modules if name.startswith(f"{other}.")), key=len,
                   default="") for name in modules if name]  # fmt: skip
    assert all(modules[name] != modules[parent]
               for name, parent in zip(filter(None, modules), parents, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["modules"].pop(""), "it does not name the model itself; add the entry"),
        (lambda d: d["modules"].update({"heads": 0}), 'names module "heads", which this model does '
         "not have; did you mean head"),
        (lambda d: d["modules"].update(head=7), 'module "head" is on partition 7; expected 0 to 1'),
        (lambda d: d["modules"].update(head="1"), 'module "head" is on partition "1"; expected'),
        (lambda d: d.pop("modules"), 'it has no "modules"; expected {"format"'),
        (lambda d: d.update(modules={"": 0}), "no module that is run is on partition 1"),
        (lambda d: d.update(partitions=1, modules=dict.fromkeys(d["modules"], 0)), "partitions=2"),
    ],
)  # fmt: skip
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

    assert all(f"could not partition the model: partition_file {file}: " in e for e in errors)
    assert all(message in error for error in errors), errors
    assert not any("_decide_here" in error for error in errors), "no traceback of another rank"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "none.json cannot be read: No such file"),
        (Path.mkdir, "none.json cannot be read: Is a directory"),
        (Path.touch, "none.json: it is empty; expected {"),
        (lambda path: path.write_bytes(b"\x80\x02"), "none.json is no text: invalid start byte"),
        (lambda path: path.write_text("{'': 0}"), "none.json: it is no JSON (parse error at line"),
    ],
    ids=["absent", "folder", "empty", "binary", "no JSON"],
)
def test_what_is_no_partition_file_is_named_on_all_ranks(pool, tmp_path: Path, make, message):
    make(tmp_path / "none.json")
    settings = config(partition_file=str(tmp_path / "none.json"), load_partition=True)

    errors = pool(2).run("partition_jobs:train", settings, 1, BATCH, fails=True)

    assert all(message in error for error in errors)


def test_ranks_with_different_models_are_told_so(pool):
    errors = pool(2).run("partition_jobs:differ_by_rank", config(), fails=True)

    for error in errors:
        assert "rank 1 built another model than rank 0" in error
        assert re.search(r"blocks\.4\.norm\.weight .* there, head\.weight .* on rank 0", error), (
            error
        )


def test_published_algorithm_on_request(losses_alone):
    ranks = RankPool(2, {"SMP_PARTITIONER": "compat"})
    try:
        check(ranks.run("partition_jobs:train", config(), STEPS, BATCH), losses_alone)
        assert "Partition chosen: level by level" in ranks.log_text()
    finally:
        ranks.close()
