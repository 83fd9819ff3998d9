# SPDX-License-Identifier: Apache-2.0
"""Names of ``torch.sagemaker`` that published scripts import; absent ones say so when used."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import pytest
import smdistributed.sagemaker as tsm
import torch
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.checkpoint.utils import SORT_BY_LAST_INT, limit_num_subdirs
from smdistributed.sagemaker.distributed.checkpoint.state_dict_utils import init_optim_state
from smdistributed.sagemaker.logger import get_logger
from smdistributed.sagemaker.nn.attn import FlashGroupedQueryAttention, FlashSelfAttention
from smdistributed.sagemaker.utils.utils import timeit
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = """
init is_initialized transform state state_handler.state delayed_param.DelayedParamIniter
utils.module_utils.empty_module_params utils.module_utils.move_buffers_to_device
distributed.checkpoint.state_dict_saver.save distributed.checkpoint.state_dict_saver.async_save
distributed.checkpoint.state_dict_saver.maybe_finalize_async_calls
distributed.checkpoint.state_dict_saver.PyTorchDistSaveShardedStrategy
distributed.checkpoint.state_dict_loader.load distributed.checkpoint.async_utils.AsyncCallsQueue
distributed.checkpoint.filesystem.DistributedFileSystemReader
distributed.checkpoint.filesystem.DistributedFileSystemWriter
distributed.checkpoint.s3_filesystem.is_s3_uri
distributed.checkpoint.state_dict_utils.sm_state_dict_type
distributed.checkpoint.state_dict_utils.SMStateDictType.SM_LOCAL_STATE_DICT
distributed.checkpoint.state_dict_utils.init_optim_state
distributed.fsdp.checkpoint.save_model_checkpoint distributed.fsdp.checkpoint.load_model_checkpoint
distributed.fsdp.checkpoint.EXPORT_KEY_MODEL distributed.fsdp.checkpoint.EXPORT_KEY_OPTIMIZER
distributed.fsdp.checkpoint.EXPORT_KEY_SCHEDULER distributed.fsdp.checkpoint.EXPORT_KEY_IDENTITY
distributed.fsdp.fully_sharded_data_parallel.register_tp_processing_pre_comm_hook
checkpoint.utils.SORT_BY_LAST_INT checkpoint.utils.limit_num_subdirs
checkpoint.constants.SMP_IS_LOAD_INFO_KEY checkpoint.constants.SMP_IS_PARTIAL_KEY
grad_norm.clip_grad_norm_ moe.moe_config.MoEConfig moe.moe_layer.MoELayer
nn.attn.FlashSelfAttention nn.attn.FlashGroupedQueryAttention
nn.huggingface.llama_flashattn.LlamaFlashAttention tensor_parallel.transformer.TransformerLMHead
tensor_parallel.transformer.TransformerLayer tensor_parallel.transformer.TETransformerLayer
context_parallel.utils.setup_transformer_engine_cp_groups
utils.process_group_utils.get_global_ranks utils.utils.timeit logger.get_logger
"""
STATE = """
hybrid_shard_degree rank rep_rank_process_group tensor_parallel_degree tp_size tp_rank
tp_process_group world_size ep_rank ep_size expert_parallel_degree cp_size cp_rank cp_process_group
context_parallel_degree world_process_group sm_activation_offloading get_rng_state_tracker
ranker.get_rep_rank ranker.get_rep_groups reset
"""


def found(name: str) -> Any:
    """As a script finds it: by importing modules as far as there are any."""
    place: Any = importlib.import_module("torch.sagemaker")
    path = "torch.sagemaker"
    for part in name.split("."):
        path += f".{part}"
        if not hasattr(place, part):
            importlib.import_module(path)
        place = getattr(place, part)
    return place


@pytest.mark.parametrize("name", NAMES.split())
def test_every_published_name_is_there(name: str) -> None:
    found(name)


@pytest.mark.parametrize("name", STATE.split())
def test_every_name_of_the_state_is_there(name: str) -> None:
    place: object = tsm.state
    for part in name.split("."):
        place = getattr(place, part)


@pytest.mark.parametrize(
    "name",
    [
        "moe.moe_layer.MoELayer",
        "context_parallel.utils.setup_transformer_engine_cp_groups",
        "distributed.fsdp.fully_sharded_data_parallel.register_tp_processing_pre_comm_hook",
    ],
)
def test_what_is_absent_raises_when_used_and_names_itself(name: str) -> None:
    with pytest.raises(NotImplementedError, match=name.rpartition(".")[2]):
        found(name)()


def test_full_state_dicts_take_the_argument_of_amazons_pytorch() -> None:
    config = FullStateDictConfig(rank0_only=True, translate_on_save=True)

    assert config.rank0_only
    assert config.translate_on_save  # type: ignore[attr-defined]


def test_the_newest_folders_are_kept(tmp_path: Path) -> None:
    for step in (5, 40, 100, 7):
        (tmp_path / f"llama_v2-{step}steps").mkdir()
    (tmp_path / "model").mkdir()

    for log in (False, True):
        left = {one.name for one in tmp_path.iterdir()}
        assert len(left) == 5
        limit_num_subdirs(tmp_path, 2, SORT_BY_LAST_INT, r"^.*\d+steps$", log=log)

    assert {one.name for one in tmp_path.iterdir()} == {
        "llama_v2-40steps", "llama_v2-100steps", "model"
    }  # fmt: skip
    limit_num_subdirs(tmp_path / "missing", 2)


@pytest.mark.parametrize("layout", ["b h s d", "b s h d"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_pytorch_in_either_layout(layout: str, causal: bool) -> None:
    query, key, value = (torch.randn(2, 3, 5, 4) for _ in range(3))
    expected = scaled_dot_product_attention(query, key, value, is_causal=causal)

    def laid(values: torch.Tensor) -> torch.Tensor:
        return values if layout == "b h s d" else values.transpose(1, 2)

    parts = [laid(one) for one in (query, key, value)]
    by_parts = FlashSelfAttention()(parts, causal=causal, layout=layout)
    packed = torch.cat(parts, dim=1 if layout == "b h s d" else 2)
    by_one = FlashSelfAttention()(packed, causal=causal, layout=layout)

    assert torch.equal(by_parts, laid(expected))
    assert torch.equal(by_one, laid(expected))


def test_queries_may_have_more_heads_than_keys() -> None:
    query, key = torch.randn(2, 6, 5, 4), torch.randn(2, 2, 5, 4)
    repeated = key.repeat_interleave(3, dim=1)

    ours = FlashGroupedQueryAttention()(query, (key, key), causal=True, layout="b h s d")

    expected = scaled_dot_product_attention(query, repeated, repeated, is_causal=True)
    assert torch.allclose(ours, expected, atol=1e-6)


@pytest.mark.parametrize("asked", ["triton_flash_attention", "use_alibi"])
def test_kinds_of_attention_that_are_absent_are_named(asked: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{asked}=True"):
        FlashSelfAttention(**{asked: True})


def test_llamas_attention_takes_the_place_of_its_own() -> None:
    from smdistributed.sagemaker.nn.huggingface.llama_flashattn import (  # noqa: PLC0415
        LlamaFlashAttention,
    )

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = torch.arange(12).reshape(1, 12)
    expected = model(input_ids=ids).logits
    before = model.model.layers[0].self_attn
    attention = LlamaFlashAttention(config)
    attention.load_state_dict(before.state_dict())

    model.model.layers[0].self_attn = attention

    assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-6)


def test_optimizer_state_is_made_without_a_change_to_parameters() -> None:
    layer = nn.Linear(3, 3)
    layer.register_parameter("empty", nn.Parameter(torch.empty(0)))
    before = {name: one.detach().clone() for name, one in layer.named_parameters()}
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.5, weight_decay=0.5)

    init_optim_state(optimizer, skip_empty_param=True)

    assert set(optimizer.state) == {layer.weight, layer.bias}
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert all(torch.equal(one, before[name]) for name, one in layer.named_parameters())
    layer.weight.grad = torch.ones_like(layer.weight)
    init_optim_state(optimizer)  # has state: nothing to do
    optimizer.state.clear()
    with pytest.raises(SMPValidationError, match="gradients"):
        init_optim_state(optimizer)


def test_the_clock_speaks_on_the_first_rank_alone(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger()
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger.name):
        for rank in (0, 1):
            with timeit(True, "Model creation", rank):
                pass
    logger.removeHandler(caplog.handler)

    assert [one.message.partition(":")[0] for one in caplog.records] == ["Model creation"]
