# SPDX-License-Identifier: Apache-2.0
"""The pipeline over real processes, held against one process."""

import math
from pathlib import Path

import pytest
import torch
from jobs.models import make_batches, train_alone, whole_numbers
from launching import run_torchrun
from rank_pool import RankPool

STEPS, BATCH = 4, 16


def config(partitions: int, **others):
    return {"partitions": partitions, "ddp": True, "microbatches": 4, **others}


def manual(**others):
    return config(2, microbatches=2, auto_partition=False, default_partition=0, **others)


def assert_trained_as_alone(results, steps, microbatches):
    """Losses and parameters of every rank have the bits of one process."""
    losses, parameters = train_alone(make_batches(steps, BATCH), microbatches, torch.float32)
    for own_losses, own_parameters, _ in results:
        assert own_losses == losses
        assert own_parameters.keys() == parameters.keys()
        for name, value in parameters.items():
            assert torch.equal(own_parameters[name], value), name


@pytest.mark.parametrize("schedule", ["simple", "interleaved", "zero_bubble"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_deterministic_pipeline_gives_the_bits_of_one_process(pool, ranks, schedule):
    results = pool(ranks).run(
        "pipeline_jobs:train",
        config(ranks, pipeline=schedule, deterministic_server=True),
        STEPS,
        BATCH,
        torch.float32,
    )

    assert_trained_as_alone(results, STEPS, microbatches=4)
    owned = [name for _, _, local in results for name in local]
    assert sorted(owned) == sorted(results[0][1]), "each parameter on exactly one partition"


def test_steps_in_a_planned_order_have_the_gradients_of_others(pool):
    """Long enough for a plan to be made, tried, and kept or not; sums of two microbatches have no
    order."""
    steps = 14
    results = pool(2).run(
        "pipeline_jobs:train",
        config(2, pipeline="zero_bubble", microbatches=2),
        steps,
        BATCH,
        torch.float32,
    )

    assert_trained_as_alone(results, steps, microbatches=2)
    assert "with the work in a planned order" in pool(2).log_text()


def test_ranks_that_do_not_run_the_function_need_no_batch(pool):
    first, second = pool(2).run("pipeline_jobs:train_without_batches_elsewhere", manual(), 2, BATCH)

    assert first == second and len(first) == 4


@pytest.mark.parametrize("placement", ["cluster", "spread", "PDT"])
def test_pipeline_times_data_equals_one_process(pool, placement):
    results = pool(4).run(
        "pipeline_jobs:train",
        config(2, microbatches=2, placement_strategy=placement, active_microbatches=1),
        STEPS,
        BATCH,
        torch.float64,
    )

    _, parameters = train_alone(make_batches(STEPS, BATCH), 4, torch.float64)
    for _, own_parameters, _ in results:
        for name, value in parameters.items():
            # Doubles, four steps, sums of 16 terms in another order: far below 1e-12.
            torch.testing.assert_close(own_parameters[name], value, rtol=1e-12, atol=1e-12)


def test_modules_go_where_set_partition_says(pool):
    pins = {"blocks.0": 1, "blocks.1": 2, "head": 3, "shared": 3}

    results = pool(4).run(
        "pipeline_jobs:train",
        config(4, auto_partition=False, default_partition=0, deterministic_server=True),
        STEPS,
        BATCH,
        torch.float32,
        pins,
    )

    losses, _ = train_alone(make_batches(STEPS, BATCH), 4, torch.float32)
    assert [result[0] for result in results] == [losses] * 4
    for name, partition in pins.items():
        assert any(n.startswith(f"{name}.") for n in results[partition][2])
    assert any(n.startswith("embed.") for n in results[0][2])


def test_structures_keep_their_types_on_the_way(pool):
    first, second = pool(2).run("pipeline_jobs:talk", manual())

    expected = torch.arange(32.0).sum().item() * 2
    for result in (first, second):
        assert result["sum"] == expected
        assert result["nothing"] is None
        assert sum(result["number"]) == expected
        assert result["text"] == ["text", "text"]
        assert math.isclose(result["mean"], expected / 32)
    assert (first["hooks"], second["hooks"]) == (0, 2), "hooks run where the module runs"
    assert torch.equal(first["x_grad"], torch.full((4, 8), 1.0)), "2 x, averaged over 2"
    assert len(first["weight_grads"]) == 0
    assert second["x_grad"] is None


def test_random_structures_are_the_same_as_arguments_and_as_results(pool):
    assert pool(2).run("pipeline_jobs:mirror_trees", manual(), 60) == [[*range(60)]] * 2


def test_one_tensor_under_two_names_gets_both_gradients(pool):
    (x_grad, nothing), (_, (weight_grad,)) = pool(2).run("pipeline_jobs:pass_aliases", manual(), 4)

    x = torch.arange(32.0).view(4, 8)
    # Gradient of 3 x x + row + 2 row, averaged over two microbatches of two rows.
    assert torch.equal(x_grad, 3 * x + torch.tensor([3.0, 0, 3.0, 0])[:, None])
    assert torch.equal(weight_grad, x.square().sum(0) / 2)
    assert nothing == []


def test_super_forward_works_in_a_remote_module(pool):
    assert pool(2).run("pipeline_jobs:call_super", manual()) == [(True, False)] * 2


def test_steps_of_the_forward_schedule_have_no_backward(pool):
    settings = manual() | {"pipeline": "_only_forward"}

    for equal, error in pool(2).run("pipeline_jobs:only_forward", settings):
        assert equal
        assert "model.backward was called under pipeline=_only_forward" in error


def test_failure_of_a_remote_module_reaches_all_ranks_and_the_next_step_works(pool):
    first, second = pool(2).run("pipeline_jobs:fail_and_go_on", manual())

    assert "ArithmeticError: this module fails on purpose" in second[0]
    assert first[0].startswith("SMPStepError: rank 1 failed in step 1:")
    assert "Traceback" in first[0] and "this module fails on purpose" in first[0]
    assert first[1] == second[1] == (2, 8)


@pytest.mark.parametrize("job", ["split_badly", "split_badly_at_once"])
def test_batch_that_does_not_divide_is_refused_on_all_ranks(pool, job):
    errors = pool(2).run(f"pipeline_jobs:{job}", manual(), fails=True)

    for error in errors:
        assert "has 3 entries along axis 0, which microbatches=2 does not divide" in error


def test_model_outside_a_step_is_refused(pool):
    errors = pool(2).run("pipeline_jobs:call_outside_a_step", manual(), fails=True)

    assert all("SMPStepError" in error and "smp.step" in error for error in errors)


def test_step_in_a_step_is_refused_on_all_ranks(pool):
    errors = pool(2).run("pipeline_jobs:nest_steps", manual(), fails=True)

    assert all("step forward_step was called inside a step" in error for error in errors)


def test_state_dicts_survive_saving_in_parts_and_whole(pool, tmp_path: Path):
    results = pool(4).run("pipeline_jobs:save_and_load", config(2, microbatches=2), str(tmp_path))

    for marked, after, from_part, from_full in results:
        assert marked is True
        assert from_part == after
        assert from_full == after
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.pt_0", "part.pt_1"]


def test_rank_that_does_not_come_to_a_step_is_named():
    with_short_patience = RankPool(2, {"SMP_TIMEOUT_SECONDS": "6"})
    try:
        with_short_patience.start("pipeline_jobs:leave_a_rank_alone", manual())

        error = with_short_patience.outcome(0).error

        assert "waited 6 s without progress" in error
        assert "waits for the forward of 1 on rank 1" in error
    finally:
        with_short_patience.close()


def test_ranks_that_torchrun_starts_again_train_over_the_store_of_the_first():
    outcome = run_torchrun(2, "smp_restart_job.py", PET_MAX_RESTARTS="1")

    assert outcome.code == 0, outcome.output
    for rank in range(2):
        assert f"rank {rank} is through in start 1" in outcome.output, outcome.output


def test_death_of_a_rank_ends_the_job():
    ranks = RankPool(2)
    try:
        ranks.start("pipeline_jobs:die_in_a_step", manual(), 1)

        assert "died" in ranks.outcome(1).error
        # Either the engine notices, or mpirun ends this rank first.
        assert "lost" in (error := ranks.outcome(0).error) or "died" in error
    finally:
        ranks.close()


def test_optimizer_state_loaded_before_the_first_step_goes_on(pool):
    for steps in pool(2).run("pipeline_jobs:resume_before_the_first_step", config(2)):
        assert set(steps) == {4.0}


@pytest.mark.parametrize("inside", [True, False])
def test_plain_backward_is_averaged_over_replicas(pool, inside):
    settings = {"ddp": True, "microbatches": 1}

    assert pool(2).run("pipeline_jobs:plain_backward", settings, inside) == [6.0, 6.0]


def test_conjugate_views_arrive_conjugated(pool):
    for whole, imaginary in pool(2).run("pipeline_jobs:conjugate", manual()):
        assert torch.equal(whole, torch.full((2,), 1 - 2j))
        assert torch.equal(imaginary, torch.full((2,), -2.0))


def test_what_a_step_returned_is_the_receivers_own(pool):
    assert pool(2).run("pipeline_jobs:change_what_was_returned", manual()) == [None, 1.0]


def test_trace_puts_buffers_back_and_outputs_lose_their_graph(pool):
    assert pool(2).run("pipeline_jobs:grow_a_cache", config(2)) == [("Named", False)] * 2


def test_tensor_that_cannot_travel_is_refused_by_name(pool):
    errors = pool(2).run("pipeline_jobs:send_a_sparse_tensor", manual(), fails=True)

    assert all("cannot travel to another partition" in error for error in errors)


@pytest.mark.parametrize("grows", [False, True], ids=["as_built", "changed_later"])
def test_sequential_passes_from_partition_to_partition(pool, grows):
    owners = [0, 1, 1, 2, 3, 1, 0, 2]
    settings = {"partitions": 4, "microbatches": 2, "auto_partition": False, "default_partition": 0}

    results = pool(4).run("pipeline_jobs:sequential", settings, owners, grows)

    alone = whole_numbers(len(owners))
    batch = torch.arange(32, dtype=torch.float64).reshape(8, 4) % 3
    expected = alone(batch)
    expected.sum().div(2).backward()  # averaged over the microbatches
    for output, gradients, _ in results:
        assert torch.equal(output, expected)
        for name, gradient in gradients.items():
            assert torch.equal(gradient, alone.get_parameter(name).grad), name
    assert sorted(n for _, g, _ in results for n in g) == sorted(dict(alone.named_parameters()))
    # Two calls a microbatch, [1:6] and [7:8]; layer by layer they would be six. Each has a forward
    # and a backward; besides 3 ranks hear of the step's begin and end and of each microbatch's end.
    calls = 6 if grows else 2
    assert results[0][2] == 2 * calls * 2 + 3 * (2 + 2)
