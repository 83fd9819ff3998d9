# SPDX-License-Identifier: Apache-2.0
"""Keys of ``torch.sagemaker.init`` and ``torch.sagemaker.state``, in one process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import smdistributed.sagemaker as tsm
import torch
import torch.distributed as dist
from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPNotInitializedError
from smdistributed.sagemaker.logger import get_logger
from smdistributed.sagemaker.tensor_parallel.replacement import split
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

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
    assert all(getattr(tsm.state, name) == value for name, value in tsm.state.settings.items())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"hybrid_shard_degre": 2}, '"hybrid_shard_degre"; did you mean hybrid_shard_degree?'),
        ({"tensor_parallel": 2}, "did you mean tensor_parallel_degree?"),
        ({"pipeline_parallel_degree": 2}, "this is SMP v1: import smdistributed.modelparallel"),
        ({"ddp": True}, 'init.config.: key "ddp": this is SMP v1'),
        ({"hybrid_shard_degree": -1}, "hybrid_shard_degree is -1; expected an integer from 0"),
        ({"hybrid_shard_degree": "two"}, 'hybrid_shard_degree is "two"; expected an integer'),
        ({"hybrid_shard_degree": True}, "hybrid_shard_degree is true; expected an integer"),
        ({"hybrid_shard_degree": [2]}, "hybrid_shard_degree is .2.; expected a number"),
        ({"hybrid_shard_degree": object()}, "holds something other than numbers"),
        ({"tensor_parallel_degree": 0}, "expected an integer from 1"),
        ({"sm_activation_offloading": "yes"}, "expected true or false"),
        ({"hybrid_shard_degree": 2}, "does not divide the number of ranks, 1"),
        ({"context_parallel_degree": 2}, "context parallelism is not offered"),
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

    with pytest.raises(SMPConfigError, match='SM_HP_MP_PARAMETERS: key "partitions": this is SMP'):
        tsm.state.hybrid_shard_degree  # noqa: B018 - reading it reads the environment


def test_a_second_init_is_accepted_if_it_says_the_same(one_rank: None) -> None:
    tsm.init({"hybrid_shard_degree": 1})
    tsm.init({"hybrid_shard_degree": 1})

    with pytest.raises(SMPConfigError, match="hybrid_shard_degree is 0 here and 1 there"):
        tsm.init({})


def test_degrees_are_not_written_after_init(one_rank: None) -> None:
    tsm.init()

    with pytest.raises(SMPConfigError, match="write it before"):
        tsm.state.tensor_parallel_degree = 2
    tsm.state.tensor_parallel_degree = 1  # as it is


def test_values_that_the_state_cannot_have_are_named() -> None:
    with pytest.raises(SMPConfigError, match=r"torch\.sagemaker\.state: random_seed is -1"):
        tsm.state.random_seed = -1

    assert tsm.state.random_seed == 12345


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "hybrid_shard_degre",
            'unknown key "hybrid_shard_degre"; did you mean hybrid_shard_degree?',
        ),
        ("pipeline_parallel_degree", "this is SMP v1"),
    ],
)
def test_names_that_the_state_does_not_have_are_not_written(name: str, words: str) -> None:
    with pytest.raises(SMPConfigError, match=rf"torch\.sagemaker\.state: .*{re.escape(words)}"):
        setattr(tsm.state, name, 2)

    assert not hasattr(tsm.state, name)


def wrapped() -> FullyShardedDataParallel:
    return FullyShardedDataParallel(nn.Linear(1, 1), device_id=torch.device("cpu"))


def test_settings_that_would_come_too_late_for_fsdp_are_named(
    one_rank: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ESTIMATOR, '{"activation_loading_horizon": 3}')

    with pytest.raises(SMPNotInitializedError, match="activation_loading_horizon=3 would have no"):
        wrapped()


def test_init_comes_before_fsdp(one_rank: None) -> None:
    model = wrapped()

    with pytest.raises(SMPConfigError, match="call init before"):
        tsm.init({"hybrid_shard_degree": 1})
    assert not tsm.is_initialized()
    del model
    tsm.init()


def test_transform_comes_between_init_and_fsdp(one_rank: None) -> None:
    with pytest.raises(SMPNotInitializedError, match="call init first"):
        tsm.transform(nn.Linear(1, 1))
    tsm.init()
    with pytest.raises(SMPConfigError, match="call transform before it"):
        split(wrapped(), from_rank0=False)


def test_what_wins_over_other_settings_is_told_once(
    one_rank: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ESTIMATOR, '{"random_seed": "3"}')
    monkeypatch.setattr(get_logger(), "handlers", [caplog.handler])

    tsm.init({"random_seed": 7})
    tsm.init({"random_seed": 7})

    told = "random_seed=3 of SM_HP_MP_PARAMETERS wins over random_seed=7 of torch.sagemaker.init"
    assert caplog.text.count(told) == 1


def test_init_comes_after_that_of_torch_distributed() -> None:
    with pytest.raises(SMPNotInitializedError, match="call it after"):
        tsm.init()


def test_the_state_has_the_arithmetic_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    tsm.state.tensor_parallel_degree = 2
    tsm.state.hybrid_shard_degree = 2

    assert (tsm.state.tp_rank, tsm.state.ranker.get_rep_rank(5)) == (1, 1)
    assert tsm.state.ranker.get_rep_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert tsm.state.ranker.shard_groups() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert tsm.state.ranker.tensor_groups() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert tsm.state.ranker.blocks() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(SMPConfigError, match="rank 8 is not in a job of 8"):
        tsm.state.ranker.get_rep_rank(8)
    with pytest.raises(SMPConfigError, match="8 ranks with tensor_parallel_degree 2 and shards of"):
        _runtime.Ranker(8, shard_degree=3, tensor_degree=2)
