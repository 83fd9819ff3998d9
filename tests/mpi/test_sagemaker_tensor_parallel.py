# SPDX-License-Identifier: Apache-2.0
"""`torch.sagemaker.transform` with tensor parallelism under FSDP1: what one process computes of the
same model, to 1e-6 in 32 bits."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the models are of transformers")

from jobs import sagemaker_tensor_jobs as jobs
from launching import run_torchrun
from transformers import AutoModelForCausalLM

TENSOR = {"tensor_parallel_degree": 2}
JOB = "sagemaker_tensor_jobs"
#: Ranks and settings; the first two are enough for what no model family changes.
WAYS: list[tuple[int, dict[str, int]]] = [
    (2, TENSOR),
    (4, TENSOR),  # sharded over two ranks
    (4, {**TENSOR, "hybrid_shard_degree": 1}),
]


@functools.cache
def alone(kind: str, shares: int) -> jobs.Numbers:
    return jobs.alone(kind, shares)


def assert_same(results: list[jobs.Numbers], expected: jobs.Numbers) -> None:
    for numbers, values in results:
        assert torch.tensor(numbers).allclose(torch.tensor(expected[0]), rtol=0, atol=1e-6)
        assert values.keys() == expected[1].keys()
        for name, value in expected[1].items():
            torch.testing.assert_close(
                values[name], value, rtol=0, atol=1e-6,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip


def cases() -> list[Any]:
    """Every family on two ranks, one on four; all ways of all families in ci/test --all."""
    found = []
    for kind in jobs.KINDS:
        for ranks, config in WAYS:
            usual = ranks == 2 or (kind == "llama" and config == TENSOR)
            marks = [] if usual else [pytest.mark.thorough]
            found.append(pytest.param(kind, ranks, config, marks=marks))
    return found


@pytest.mark.parametrize(("kind", "ranks", "config"), cases())
def test_a_split_model_learns_what_one_process_learns(
    pool: Any, tmp_path: Path, kind: str, ranks: int, config: dict[str, int]
) -> None:
    results = pool(ranks).run(f"{JOB}:trained", {}, config, str(tmp_path), kind)

    assert_same(results, alone(kind, ranks // 2))


@pytest.mark.parametrize(("ranks", "config"), WAYS)
def test_flat_parameters_learn_the_same(
    pool: Any, tmp_path: Path, ranks: int, config: dict[str, int]
) -> None:
    results = pool(ranks).run(
        f"{JOB}:trained", {}, config, str(tmp_path), "qwen3", orig_params=False
    )

    assert_same(results, alone("qwen3", ranks // 2))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activations_that_are_recomputed_change_no_bit(
    pool: Any, tmp_path: Path, reentrant: bool
) -> None:
    kept, recomputed = (
        pool(4).run(f"{JOB}:trained", {}, TENSOR, str(tmp_path), "gptneox", **more)
        for more in ({}, {"reentrant": reentrant})
    )

    assert_equal(recomputed, kept)


def assert_equal(ours: list[jobs.Numbers], theirs: list[jobs.Numbers]) -> None:
    for (numbers, values), (expected, whole) in zip(ours, theirs, strict=True):
        assert numbers == expected
        assert values.keys() == whole.keys()
        assert all(torch.equal(one, whole[name]) for name, one in values.items())


def test_a_process_can_begin_anew(pool: Any, tmp_path: Path) -> None:
    for first, second in pool(2).run(f"{JOB}:again", {}, TENSOR, str(tmp_path), "llama"):
        assert_equal([second], [first])


@pytest.mark.parametrize("kind", ["llama", "llama3", "gptneox", "qwen3"])
def test_a_full_checkpoint_is_the_given_model(pool: Any, tmp_path: Path, kind: str) -> None:
    have_values = pool(4).run(f"{JOB}:saved_whole", {}, TENSOR, str(tmp_path), kind)

    assert have_values == [True, False, False, False]
    saved = torch.load(tmp_path / "pytorch_model.bin")
    given = jobs.made(kind).state_dict()
    assert saved.keys() == given.keys()
    assert all(torch.equal(saved[name], value) for name, value in given.items())
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert all(torch.equal(value, given[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize(("ranks", "config"), WAYS)
def test_a_job_goes_on_from_a_sharded_checkpoint(
    pool: Any, tmp_path: Path, ranks: int, config: dict[str, int]
) -> None:
    for unbroken, resumed in pool(ranks).run(f"{JOB}:resumed", {}, config, str(tmp_path), "llama3"):
        assert_equal([resumed], [unbroken])


def test_a_full_state_dict_can_be_loaded(pool: Any, tmp_path: Path) -> None:
    assert all(pool(4).run(f"{JOB}:loaded_whole", {}, TENSOR, str(tmp_path), "gptneox"))


@pytest.mark.parametrize("delayed", [True, False])
def test_rank_0_alone_may_have_the_values(pool: Any, tmp_path: Path, delayed: bool) -> None:
    results = pool(4).run(f"{JOB}:of_rank0", {}, TENSOR, str(tmp_path), "llama3", delayed)

    assert_same(results, alone("llama3", 2))


def test_delayed_values_are_the_same_whatever_the_degrees(pool: Any, tmp_path: Path) -> None:
    ways = [*WAYS, (4, {"tensor_parallel_degree": 4})]
    first, *others = (
        one
        for ranks, config in ways
        for one in pool(ranks).run(f"{JOB}:delayed", {}, config, str(tmp_path), "gptneox")
    )

    for other in others:
        assert all(torch.equal(value, other[name]) for name, value in first.items())
    for name, value in first.items():
        if "norm" in name:
            assert (value == (1.0 if name.endswith("weight") else 0.0)).all(), name
        elif name.endswith("weight"):
            assert value.std().item() == pytest.approx(0.02, rel=0.1), name
        else:
            assert not value.any(), name


def test_ranks_of_a_group_begin_with_the_values_of_the_first(pool: Any, tmp_path: Path) -> None:
    results = pool(2).run(f"{JOB}:of_other_seeds", {}, TENSOR, str(tmp_path), "llama")

    assert_same(results, alone("llama", 1))


def test_dropout_is_recomputed_as_it_was(pool: Any, tmp_path: Path) -> None:
    (kept, draws), (again, _), (reentrant, _) = (
        zip(*pool(2).run(f"{JOB}:with_dropout", {}, TENSOR, str(tmp_path), how), strict=True)
        for how in (None, False, True)
    )

    assert_equal(list(again), list(kept))
    assert_equal(list(reentrant), list(kept))
    assert kept[0][0] == kept[1][0]
    assert kept[0][0] != alone("gptneox", 1)[0], "nothing is dropped"
    (inside, outside), (others_inside, others_outside) = draws
    assert inside != others_inside
    assert outside == others_outside


def test_what_would_be_wrong_is_refused_by_name(pool: Any, tmp_path: Path) -> None:
    for found in pool(2).run(f"{JOB}:refusals", {}, TENSOR, str(tmp_path)):
        for what, said in (
            ("architecture", "cannot split; expected one of Transformers' GPTNeoXForCausalLM, "),
            ("heads", "num_key_value_heads is 1, which 2 tensor ranks do not divide"),
            ("positions", "whose rope_type is default, linear or llama3"),
            ("batches", "argument input_ids has other values on rank 1 than on rank 0"),
            ("type", "is of torch.bfloat16; expected torch.float32"),
            ("not transformed", "that torch.sagemaker.transform has not split"),
            ("values of one", "or on rank 0 with load_state_dict_from_rank0=True"),
            ("whole optimizer", "save it with SHARDED_STATE_DICT"),
        ):
            assert said in found[what], (what, found[what])


def test_only_synced_models_wait_for_rank_0(pool: Any, tmp_path: Path) -> None:
    for found in pool(4).run(f"{JOB}:refusals", {}, TENSOR, str(tmp_path)):
        assert "sync_module_states=True" in found["not synced"]


def test_a_session_of_the_script_is_refused(pool: Any) -> None:
    for said in pool(2).run(f"{JOB}:session_of_the_script", {}):
        assert "use one of the two libraries" in said


@pytest.mark.thorough
def test_a_script_of_its_own_ends_well() -> None:
    settings = '{"tensor_parallel_degree": 2, "hybrid_shard_degree": 1}'

    outcome = run_torchrun(2, "sagemaker_tensor_script.py", SM_HP_MP_PARAMETERS=settings)

    assert outcome.code == 0, outcome.output
    assert outcome.output.count(f"first loss {alone('llama', 1)[0][0][0]:.4f}") == 2
    assert "Error" not in outcome.output and "Traceback" not in outcome.output, outcome.output
