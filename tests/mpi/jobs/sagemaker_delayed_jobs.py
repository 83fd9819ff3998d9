# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker*.py with models of Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from sagemaker_jobs import FSDP, script
from smdistributed.sagemaker.delayed_param import DelayedParamIniter
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    ),
    "gpt2": GPT2Config(
        vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False,
        bos_token_id=1, eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
}  # fmt: skip
LAYERS: dict[str, Any] = {"llama": LlamaDecoderLayer, "gpt2": GPT2Block}
SCALED = {"llama": "o_proj.weight", "gpt2": "c_proj.weight"}


def delayed(kind: str) -> dict[str, Any]:
    """A delayed model beside an eager one."""
    with script({"hybrid_shard_degree": 2}):
        eager = AutoModelForCausalLM.from_config(CONFIGS[kind])
        torch.manual_seed(5)
        with init_empty_weights(include_buffers=kind == "llama"):
            model = AutoModelForCausalLM.from_config(CONFIGS[kind])
        initer = DelayedParamIniter(model)
        assert initer.count_num_params() == sum(one.numel() for one in eager.parameters())
        with initer.validate_params_and_buffers_inited():
            wrapped = FSDP(
                model,
                sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                auto_wrap_policy=ModuleWrapPolicy({LAYERS[kind]}),
                param_init_fn=initer.get_param_init_fn(),
                post_param_init_fn=initer.get_post_param_init_fn(),
                use_orig_params=True,
            )
        ids = torch.arange(48).reshape(2, 24) % 64
        loss = wrapped(input_ids=ids, labels=ids)["loss"]
        loss.backward()
        buffers = dict(eager.named_buffers())
        with FSDP.summon_full_params(wrapped):
            head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
            return {
                "buffers equal": all(
                    torch.equal(one, buffers[name.replace("_fsdp_wrapped_module.", "")])
                    for name, one in model.named_buffers()
                ),
                "tied": head.weight is embedding.weight,
                "loss": loss.item(),
                "eager loss": eager(input_ids=ids, labels=ids)["loss"].item(),
                "spread": spread(model, SCALED[kind]),
                "eager spread": spread(eager, SCALED[kind]),
            }


def spread(model: nn.Module, suffix: str) -> float:
    found = [
        one.detach().flatten() for name, one in model.named_parameters() if name.endswith(suffix)
    ]
    return torch.cat(found).std().item()


class Scale(nn.Module):
    """A module of a user, which does not say how its parameter begins."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.scale


def delayed_without_values() -> None:
    with script({}):
        with init_empty_weights():
            model = nn.Sequential(nn.Linear(3, 3), Scale())
        initer = DelayedParamIniter(model)
        with initer.validate_params_and_buffers_inited():
            FSDP(model, param_init_fn=initer.get_param_init_fn())


def saved_whole(kind: str, folder: str) -> dict[str, torch.Tensor]:
    """A folder for `from_pretrained`, of a model after a step; its values, on rank 0."""
    with script({"hybrid_shard_degree": 2}):
        torch.manual_seed(11)
        model = FSDP(
            AutoModelForCausalLM.from_config(CONFIGS[kind]),
            auto_wrap_policy=ModuleWrapPolicy({LAYERS[kind]}),
            use_orig_params=True,
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        tokens = torch.randint(64, (2, 8), generator=torch.Generator().manual_seed(1))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        options = FullStateDictConfig(rank0_only=True, offload_to_cpu=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, options):
            values = model.state_dict()
        if dist.get_rank() == 0:
            torch.save(values, Path(folder) / "pytorch_model.bin")
            CONFIGS[kind].save_pretrained(folder)
        dist.barrier()
        return dict(values)
