# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of another model or another optimizer, over real processes and all kinds of state."""

import pytest

BASE = {"ddp": True, "microbatches": 2, "auto_partition": False, "default_partition": 0,
        "sdp_param_persistence_threshold": 0}  # fmt: skip
WAYS = {
    "plain": (1, {}),
    "replicas": (2, {}),
    "pipeline": (2, {"partitions": 2}),
    "sharded": (2, {"sharded_data_parallel_degree": 2}),
    "optimizer": (2, {"shard_optimizer_state": True}),
    "16-bit": (2, {"bf16": True}),
    "tensor": (2, {"tensor_parallel_degree": 2}),
    "tensor + sharded": (4, {"tensor_parallel_degree": 2, "sharded_data_parallel_degree": 2}),
}
#: State goes on as it is, or is put together anew.
PAIRS = [*((way, way) for way in WAYS if way != "plain"), ("pipeline", "plain"),
         ("sharded", "plain"), ("16-bit", "plain"), ("tensor", "plain"), ("plain", "tensor"),
         ("plain", "sharded"), ("tensor + sharded", "optimizer"),
         ("sharded", "pipeline")]  # fmt: skip

#: Before the first step, when a model may have no partition yet, or after it.
TRIES = [(*pair, number % 2) for number, pair in enumerate(PAIRS)]


@pytest.fixture(scope="module")
def saved(pool, tmp_path_factory):
    """Folders by way and optimizer; made when asked for."""
    made = {}

    def by(way, kind):
        if (way, kind) not in made:
            made[way, kind] = tmp_path_factory.mktemp("saved")
            run(pool, way, "save", str(made[way, kind]), kind)
        return made[way, kind]

    return by


def run(pool, way, job, *arguments, fails=False):
    ranks, settings = WAYS[way]
    config = {**BASE, **settings}
    return pool(ranks).run(f"state_fit_jobs:{job}", config, *arguments, fails=fails)


def refused(pool, after, folder, kind, width=4, steps=0):
    errors = run(pool, after, "resume", str(folder), kind, width, steps, fails=True)
    assert all("SMPCheckpointError: " in error for error in errors), errors
    assert all(f"{folder}/saved_partial " in error for error in errors), errors
    return errors


@pytest.mark.parametrize(("before", "after", "steps"), TRIES)
def test_state_of_another_optimizer_is_refused_on_all_ranks(pool, saved, before, after, steps):
    kinds = {"sgd": "SGD", "adamw": "AdamW"}
    for one, other in (("sgd", "adamw"), ("adamw", "sgd")):
        errors = refused(pool, after, saved(before, one), other, steps=steps)

        said = f"saved_partial is of {kinds[one]}, and the optimizer here is {kinds[other]}: its"
        assert all(said in error for error in errors), errors
        assert all("load_optimizer=False" in error for error in errors), errors


@pytest.mark.parametrize(("before", "after", "steps"), TRIES)
def test_another_number_of_groups_is_refused_on_all_ranks(pool, saved, before, after, steps):
    errors = refused(pool, after, saved(before, "adamw"), "groups", steps=steps)

    resharded = ("tensor" in before) != ("tensor" in after)
    said = "has 1 groups of parameters, here are 2" if resharded else "in groups of [4], here 4 in "
    assert all(said in error for error in errors), errors


@pytest.mark.parametrize(("before", "after", "steps"), TRIES)
def test_other_shapes_are_refused_on_all_ranks(pool, saved, before, after, steps):
    errors = refused(pool, after, saved(before, "adamw"), "adamw", width=8, steps=steps)

    said = "parameter 0.weight has shape (4, 4) there and (8, 4) here; build the model as in"
    elsewhere = "parameter 1."  # the first one that lives on a partition
    assert any(said in error for error in errors), errors
    assert all(said in error or elsewhere in error for error in errors), errors


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_the_same_optimizer_goes_on(pool, saved, before, after):
    run(pool, after, "resume", str(saved(before, "adamw")), "adamw", 4, 0)
