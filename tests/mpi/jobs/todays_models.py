# SPDX-License-Identifier: Apache-2.0
"""Models of today by their real classes, in miniature: their batches, and training in one process
and on the ranks of a job. Doubles, no dropout."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from jobs.tensor_jobs import own_batch
from torch import nn

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 32, 6, 16, 4, 4
BATCH, STEPS = 8, 5

_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 12,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}

_NEOX = {
    **{key: value for key, value in _DECODER.items() if key != "num_key_value_heads"},
    "hidden_size": 32,  # heads of 8, of which 2 are turned
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**_DECODER, "pad_token_id": 0}),
    "llama3": ("Llama", {**_DECODER, "rope_parameters": _LLAMA3, "attention_bias": True}),
    "mistral": ("Mistral", {**_DECODER, "sliding_window": 3}),
    "qwen2": (
        "Qwen2",
        {**_DECODER, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2},
    ),
    "qwen3": ("Qwen3", {**_DECODER, "head_dim": 6, "attention_bias": True}),
    "gemma": ("Gemma", {**_DECODER, "head_dim": 8, "pad_token_id": 0}),
    "gptneox": ("GPTNeoX", _NEOX),
    "gptneox_in_turn": (
        "GPTNeoX",
        {**_NEOX, "use_parallel_residual": False, "rotary_pct": 0.5, "attention_bias": False},
    ),
    "phi": ("Phi", {**_DECODER, "num_key_value_heads": HEADS}),
    "modernbert": (
        "ModernBert",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "intermediate_size": 24,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": 12,
            "local_attention": 4,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    "whisper": (
        "Whisper",
        {
            "vocab_size": VOCABULARY,
            "num_mel_bins": 4,
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "max_source_positions": 8,
            "max_target_positions": 12,
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "use_cache": False,
        },
    ),
    "t5": (
        "T5",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "d_kv": 4,
            "d_ff": 24,
            "num_layers": 2,
            "num_heads": HEADS,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
            "decoder_start_token_id": 0,
            "use_cache": False,
        },
    ),
}
_HEADS = {"modernbert": "ForMaskedLM", "whisper": "ForConditionalGeneration",
          "t5": "ForConditionalGeneration"}  # fmt: skip
#: Those of which whole models become distributed ones.
DISTRIBUTED = (
    "llama", "llama3", "mistral", "qwen2", "qwen3", "gemma", "gptneox", "gptneox_in_turn"
)  # fmt: skip


def made(kind: str) -> Any:
    """The model, the same in every process."""
    torch.manual_seed(7)
    family, options = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**options)
    model = getattr(transformers, family + _HEADS.get(kind, "ForCausalLM"))(config).double()
    with torch.no_grad():  # norms and biases begin as 1 and 0, with which mistakes would not show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.train()


def batch(kind: str, step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)

    def words() -> torch.Tensor:
        return torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)

    if kind == "whisper":
        sounds = torch.randn(BATCH, 4, 16, generator=generator, dtype=torch.float64)
        return {"input_features": sounds, "labels": words()}
    inputs = {"input_ids": words(), "labels": words()}
    if kind in ("llama", "gemma", "gptneox", "modernbert"):
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[::2, -2:] = 0
        inputs["attention_mask"] = mask
    return inputs


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # Without a floor, gradients that are zero but for rounding would be made whole steps.
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=0.01, eps=1e-4)


def train_alone(kind: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = made(kind)
    optimizer = _optimizer(model)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch(kind, step)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "state": model.state_dict()}


def train(kind: str) -> dict[str, Any]:
    """The same as the job's settings have it, with the names of distributed classes."""
    module = made(kind)
    smp.set_tensor_parallelism(module)
    model = smp.DistributedModel(module, trace_device="cpu")
    optimizer = smp.DistributedOptimizer(_optimizer(model))

    @smp.step
    def step(model, inputs):
        loss = model(**inputs).loss
        model.backward(loss)
        return loss

    losses = []
    for number in range(STEPS):
        optimizer.zero_grad()
        inputs = batch(kind, number)
        own = dict(zip(inputs, own_batch(*inputs.values()), strict=True))
        loss = step(model, own).reduce_mean()
        losses.append(torch.stack(smp.allgather(loss, smp.DP_GROUP)).mean().item())
        optimizer.step()
    return {
        "losses": losses,
        "state": model.plain_state_dict(),
        "distributed": [type(module).__name__ for module in model.distributed_modules()],
        "here": len(list(model.local_parameters())),
    }


def translated(kind: str) -> bool:
    """True if whole state dicts are read by either names, and given back by the plain ones."""
    entries = made(kind).state_dict()
    model = smp.DistributedModel(_annotated(kind))
    model.load_state_dict(entries)
    again = model.plain_state_dict()
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    return again.keys() == entries.keys() and all(
        torch.equal(again[name], value) for name, value in entries.items()
    )


def _annotated(kind: str) -> nn.Module:
    module: nn.Module = made(kind)
    smp.set_tensor_parallelism(module)
    return module
