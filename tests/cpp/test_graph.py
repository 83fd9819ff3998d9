# SPDX-License-Identifier: Apache-2.0
"""Models that are no chain, in C++: over partitions, recomputed, sharded, in 16 bits; mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cpp.jobs import run_job

PIPELINE = {"pipeline_parallel_degree": 2, "microbatches": 2, "deterministic_server": True}


def run(
    outside: Path,
    folder: Path,
    settings: dict[str, object],
    ranks: int = 0,
    after: Path | None = None,
    variables: dict[str, str] | None = None,
    **hyperparameters: object,
):
    """A job of the program `graph`, which goes on from the checkpoint of the one in the folder
    ``after``; what it printed, and its exit code."""
    variables = {"SM_LAUNCH_REPORT": "0", **(variables or {})}
    ranks = ranks or (2 if settings.keys() & {"pipeline_parallel_degree", "ddp"} else 1)
    return run_job(
        folder / "job", outside, "graph", settings,
        processes=ranks, hyperparameters=hyperparameters, after=after and after / "job",
        **variables,
    )  # fmt: skip


def losses(outside: Path, folder: Path, settings: dict[str, object], **hyperparameters: object):
    done = run(outside, folder, settings, **hyperparameters)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("loss ")[1] for line in done.stdout.splitlines() if "loss " in line]
    assert len(lines) == 5, done.stdout
    return lines


@pytest.fixture(scope="module")
def plain(outside, tmp_path_factory) -> list[str]:
    """Losses and norms of gradients in one process."""
    return losses(outside, tmp_path_factory.mktemp("plain"), {"microbatches": 2})


def test_it_learns(plain):
    assert float(plain[-1].split()[0]) < 0.7 * float(plain[0].split()[0])


@pytest.mark.parametrize(
    "settings",
    [
        PIPELINE,
        {"microbatches": 2, "ddp": True, "sharded_data_parallel_degree": 2,
         "sdp_param_persistence_threshold": 1, "sdp_gradient_clipping": 0.0},
        {"microbatches": 2, "ddp": True, "shard_optimizer_state": True},
        {"microbatches": 2, "ddp": True},
    ],
    ids=["pipeline", "sharded", "sharded_optimizer", "replicas"],
)  # fmt: skip
def test_two_ranks_learn_what_one_does(outside, plain, tmp_path, settings):
    # Replicas have the same batch here, so their mean is what one has.
    assert losses(outside, tmp_path, settings, recompute=True) == plain


@pytest.mark.parametrize("settings", [{}, PIPELINE], ids=["one", "pipeline"])
def test_recomputing_draws_the_same_random_numbers(outside, tmp_path, settings):
    kept = losses(outside, tmp_path / "kept", settings, drop=0.5)
    again = losses(outside, tmp_path / "again", settings, drop=0.5, recompute=True)
    stored = losses(
        outside, tmp_path / "stored", settings | {"offload_activations": True},
        drop=0.5, recompute=True,
    )  # fmt: skip
    assert kept == again == stored


@pytest.mark.parametrize("settings", [{}, PIPELINE], ids=["one", "pipeline"])
def test_recomputing_is_under_the_forwards_autocast(outside, tmp_path, settings):
    calls, norms = [], []
    for recompute in (False, True):
        done = run(outside, tmp_path / str(recompute), settings, autocast=True, recompute=recompute)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.findall(r"autocast in (\d+) of (\d+) calls", done.stdout)
        assert all(under == all_calls for under, all_calls in found), found
        calls.append(sum(int(all_calls) for _, all_calls in found))
        norms.append(float(re.search(r"loss \S+ (\S+)", done.stdout)[1]))
    assert calls[1] == 2 * calls[0] > 0
    # Gradients of a tensor that is used often are added in 16 bits, and in another order.
    assert norms[1] == pytest.approx(norms[0], rel=0.01)


def test_recomputing_leaves_running_statistics_alone(outside, tmp_path):
    kept, again = (
        run(outside, tmp_path / str(recompute), {}, recompute=recompute).stdout.split(
            "statistics "
        )[1]
        for recompute in (False, True)
    )
    assert kept == again


@pytest.mark.parametrize("settings", [{}, {"bf16": True}], ids=["whole", "sixteen_bits"])
def test_a_checkpoint_with_frozen_parameters_is_complete(outside, tmp_path, settings):
    losses(outside, tmp_path / "first", settings, freeze=True, save=True)
    done = run(outside, tmp_path / "second", {}, after=tmp_path / "first")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("settings", "wait"),
    [(PIPELINE, 0), ({"microbatches": 2, "ddp": True, "shard_optimizer_state": True}, 1)],
    ids=["pipeline", "sharded_optimizer"],
)
def test_a_save_beside_training_has_the_state_of_its_moment(outside, tmp_path, settings, wait):
    whole = losses(outside, tmp_path / "first", settings, save_after=1, wait=wait)

    done = run(outside, tmp_path / "second", settings, after=tmp_path / "first")

    assert done.returncode == 0, done.stdout + done.stderr
    rest = [line.split("loss ")[1] for line in done.stdout.splitlines() if "loss " in line]
    assert rest[:3] == whole[2:]


@pytest.mark.parametrize(
    "settings", [PIPELINE, {"microbatches": 2, "ddp": True, "shard_optimizer_state": True}],
    ids=["pipeline", "sharded_optimizer"],
)  # fmt: skip
def test_a_job_whose_rank_is_killed_goes_on_from_memory(outside, tmp_path, settings):
    whole = losses(outside, tmp_path / "whole", settings)
    variables = {"SM_LAUNCH_RESTARTS": "1", "SMP_CHECKPOINT_MEMORY": "1"}

    done = run(outside, tmp_path / "killed", settings, variables=variables, killed_after=2)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((tmp_path / "killed/job/checkpoints").iterdir())
    told = [line.split("loss ")[1] for line in done.stdout.splitlines() if "loss " in line]
    assert told[:5] == whole
    assert len(told) == 3 + 5


@pytest.mark.parametrize("narrow", ["bf16", "fp16"])
def test_sixteen_bits_learn_alike_on_one_rank_and_over_shards(outside, plain, tmp_path, narrow):
    one = losses(outside, tmp_path / "one", {narrow: True, "microbatches": 2})
    two = losses(
        outside, tmp_path / "two",
        {narrow: True, "microbatches": 2, "ddp": True, "sharded_data_parallel_degree": 2,
         "sdp_param_persistence_threshold": 1, "sdp_gradient_clipping": 0.0},
    )  # fmt: skip
    assert one == two
    assert one != plain
    if narrow == "bf16":  # the scale of fp16 overflows first, and skips these steps
        assert float(one[-1].split()[0]) < 0.7 * float(one[0].split()[0])
    else:
        assert {line.split()[1] for line in one} == {"-1"}


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("outside", 'unit "embed" was called outside a step; call it in the body'),
        ("twice", "'mix' already"),
        ("undefined", 'argument 0 of unit "embed" is an undefined tensor'),
        ("two_inputs", "a unit was called with 2 tensors, which its function does not take"),
        ("ended", 'unit "embed" was called after its DistributedModel had ended'),
        ("unknown", 'DistributedModel::call: no unit is named "no_such_unit"'),
    ],
)
def test_mistakes_are_named(outside, tmp_path, mistake, message):
    done = run(outside, tmp_path, {}, mistake=mistake)
    assert done.returncode != 0
    assert message in done.stdout


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("plain_optimizer", "wrap yours, as in smp::DistributedOptimizer"),
        ("second_optimizer", "the model has an optimizer already, which steps its masters"),
    ],
)
def test_mistakes_with_masters_are_named(outside, tmp_path, mistake, message):
    done = run(outside, tmp_path, {"bf16": True}, mistake=mistake)
    assert done.returncode != 0
    assert message in done.stdout


def test_offloading_without_recomputed_units_is_refused(outside, tmp_path):
    done = run(outside, tmp_path, {"offload_activations": True})
    assert "no unit has that" in done.stdout


def test_a_self_check_is_refused(outside, tmp_path, monkeypatch):
    monkeypatch.setenv("SMP_SELF_CHECK", "1")
    done = run(outside, tmp_path, {})
    assert "SMP_SELF_CHECK is not available to C++ programs" in done.stdout


def test_ranks_that_make_different_models_are_told_which_unit(outside, tmp_path):
    done = run(outside, tmp_path, PIPELINE, mistake="different")
    assert done.returncode != 0
    assert "rank 1 and rank 0 make different models: unit 0 is" in done.stdout


def test_ranks_in_different_calls_are_told_before_their_limit(outside, tmp_path):
    """Rank 1 is in a barrier, while the others make a step and wait in groups of smddp: for 1,800 s
    at most, which is longer than the test waits for the job."""
    settings = {"microbatches": 2, "ddp": True, "sharded_data_parallel_degree": 2,
                "sdp_gradient_clipping": 0.0}  # fmt: skip
    done = run(outside, tmp_path, settings, ranks=4, mistake="barrier")
    assert done.returncode != 0
    for rank in range(4):
        said = [line for line in done.stdout.splitlines() if f"rank:{rank},algo-1]" in line]
        assert any("error: " in line and "none of these calls can end" in line for line in said), (
            rank, done.stdout)  # fmt: skip


def test_programs_have_groups_of_their_own(outside, tmp_path):
    settings = {"ddp": True, "pipeline_parallel_degree": 2, "microbatches": 2}
    done = run(outside, tmp_path, settings, ranks=4, groups=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = sorted(re.findall(r"rank (\d) of ([\d ]+) sums up to (\d)", done.stdout))
    groups = {0: ("0 1", "0 2"), 1: ("0 1", "1 3"), 2: ("2 3", "0 2"), 3: ("2 3", "1 3")}
    wanted = [(str(rank), members, str(sum(map(int, members.split()))))
              for rank, own in groups.items() for members in ("0 1 2 3", *own)]  # fmt: skip
    assert told == sorted(wanted)
