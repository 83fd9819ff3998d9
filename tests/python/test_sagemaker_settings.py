# SPDX-License-Identifier: Apache-2.0
"""Keys of ``torch.sagemaker.init`` and ``torch.sagemaker.state``, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import smdistributed.sagemaker as tsm
import torch.distributed as dist
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPNotInitializedError
from smdistributed.sagemaker._ranker import Ranker
from smdistributed.sagemaker._settings import KEYS, check_together

ESTIMATOR = "SM_HP_MP_PARAMETERS"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (ESTIMATOR, "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    tsm.state.reset()
    yield
    tsm.state.reset()


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_every_documented_key_has_its_default(one_rank: None) -> None:
    tsm.init()

    assert tsm.state.settings == {
        "hybrid_shard_degree": 0,
        "sm_activation_offloading": True,
        "activation_loading_horizon": 2,
        "fsdp_cache_flush_warnings": True,
        "allow_empty_shards": False,
        "tensor_parallel_degree": 1,
        "context_parallel_degree": 1,
        "expert_parallel_degree": 1,
        "random_seed": 12345,
    }
    assert all(getattr(tsm.state, name) == tsm.state.settings[name] for name in KEYS)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hybrid_shard_degre": 2}, "no key hybrid_shard_degre; nearest: hybrid_shard_degree"),
        ({"tensor_parallel": 2}, "nearest: tensor_parallel_degree"),
        ({"pipeline_parallel_degree": 2}, "this is SMP v1: import smdistributed.modelparallel"),
        ({"microbatches": 4}, "the key microbatches: this is SMP v1"),
        ({"partitions": 4}, "this is SMP v1"),
        ({"ddp": True}, "this is SMP v1"),
        ({"hybrid_shard_degree": -1}, "hybrid_shard_degree is -1; expected at least 0"),
        ({"hybrid_shard_degree": "2"}, "hybrid_shard_degree is '2'; expected a whole number"),
        ({"hybrid_shard_degree": True}, "hybrid_shard_degree is True; expected a whole number"),
        ({"tensor_parallel_degree": 0}, "expected at least 1"),
        ({"sm_activation_offloading": "yes"}, "expected true or false"),
        ({"hybrid_shard_degree": 2}, "does not divide the number of ranks, 1"),
        (3, "is of int; expected a dict"),
    ],
)
def test_what_is_wrong_is_named(one_rank: None, config: Any, words: str) -> None:
    with pytest.raises(SMPConfigError, match=words):
        tsm.init(config)

    assert not tsm.is_initialized()


def test_settings_come_from_a_file(one_rank: None, tmp_path: Path) -> None:
    file = tmp_path / "smp_config.json"
    file.write_text(json.dumps({"activation_loading_horizon": 5}))

    tsm.init(file)

    assert tsm.state.activation_loading_horizon == 5


@pytest.mark.parametrize("text", [None, "{", "[1]"])
def test_a_file_without_settings_is_named(one_rank: None, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "smp_config.json"
    if text is not None:
        file.write_text(text)

    with pytest.raises(SMPConfigError, match=r"smp_config\.json"):
        tsm.init(str(file))


def test_the_estimator_goes_before_the_script_and_the_state_before_both(
    one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"tensor_parallel_degree": 4, "activation_loading_horizon": 3}
    monkeypatch.setenv(ESTIMATOR, json.dumps(settings))
    assert (tsm.state.tensor_parallel_degree, tsm.state.tp_size) == (4, 4)  # before init

    tsm.state.tensor_parallel_degree = 1
    tsm.init({"activation_loading_horizon": 2, "random_seed": 7})

    assert tsm.state.tensor_parallel_degree == 1
    assert tsm.state.activation_loading_horizon == 3
    assert tsm.state.random_seed == 7


def test_wrong_parameters_of_the_estimator_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ESTIMATOR, '{"partitions": 2}')

    with pytest.raises(SMPConfigError, match="SM_HP_MP_PARAMETERS: the key partitions: this is"):
        tsm.state.hybrid_shard_degree  # noqa: B018 - reading it reads the environment


def test_a_second_init_is_accepted_if_it_says_the_same(one_rank: None) -> None:
    tsm.init({"hybrid_shard_degree": 1})
    tsm.init({"hybrid_shard_degree": 1})

    with pytest.raises(SMPConfigError, match="hybrid_shard_degree 1, now 0"):
        tsm.init({})


def test_degrees_are_not_written_after_init(one_rank: None) -> None:
    tsm.init()

    with pytest.raises(SMPConfigError, match="write it before"):
        tsm.state.tensor_parallel_degree = 2


def test_init_comes_after_that_of_torch_distributed() -> None:
    with pytest.raises(SMPNotInitializedError, match="call it after"):
        tsm.init()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert_parallel_degree": 2}, "expert parallelism is not offered"),
        ({"context_parallel_degree": 2}, "context parallelism is not offered"),
        ({"context_parallel_degree": 4, "hybrid_shard_degree": 2}, "at most hybrid_shard_degree"),
        ({"expert_parallel_degree": 2, "tensor_parallel_degree": 2}, "at most one of them"),
        ({"tensor_parallel_degree": 4, "hybrid_shard_degree": 4}, "is 16, which does not divide"),
        ({"tensor_parallel_degree": 3}, "tensor_parallel_degree is 3, which does not divide"),
    ],
)
def test_degrees_that_do_not_go_together_are_named(changes: dict[str, int], words: str) -> None:
    settings = {name: key.default for name, key in KEYS.items()} | changes

    with pytest.raises((SMPConfigError, RuntimeError), match=words):
        check_together(settings, 8)


@pytest.mark.parametrize("world", [1, 2, 4, 8, 12, 16])
def test_every_rank_is_in_one_group_of_each_kind(world: int) -> None:
    for tensor in range(1, world + 1):
        for shard in range(1, world + 1):
            if world % (tensor * shard):
                continue
            ranker = Ranker(world, shard, tensor)
            kinds = (ranker.get_rep_groups(), ranker.shard_groups(), ranker.tensor_groups())
            for groups in kinds:
                assert sorted(rank for group in groups for rank in group) == list(range(world))
            for group in ranker.get_rep_groups():  # one of each replica, in their order
                assert [ranker.get_rep_rank(rank) for rank in group] == list(range(len(group)))
            for group in ranker.shard_groups():
                assert len(group) == shard
                assert len({rank % tensor for rank in group}) == 1
