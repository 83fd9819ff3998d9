# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_tensor_parallel.py, and one process for comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._slices import random_streams
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    distribution_axis,
    slice_of,
    whole_of,
)
from torch import nn

SAMPLES, SEQUENCE, WIDTH = 8, 4, 8


def integers(*shape: int, seed: int, least: int = -1, most: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, most + 1, shape, generator=generator).float()


class Layers(nn.Module):
    """Plain layers before and after distributed ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = smp.nn.DistributedEmbedding(10, WIDTH)
        self.before = nn.Linear(WIDTH, WIDTH)
        self.split = smp.nn.DistributedLinear(WIDTH, WIDTH)
        self.after = nn.Linear(WIDTH, 3)

    def forward(self, ids):
        return self.after(self.split(self.before(self.embedding(ids))))


def fill_with_integers(model: nn.Module) -> None:
    """The same whole values for any number of tensor ranks."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            axis = distribution_axis(parameter)
            shape = list(parameter.shape)
            if axis is not None:
                shape[axis] *= smp.tp_size()
            whole = integers(*shape, seed=number)
            parameter.copy_(slice_of(whole, axis))


def own_share() -> tuple[int, int]:
    """Number of this rank's part of the global batch, and of parts."""
    if smp.state.cfg.prescaled_batch:
        return smp.rdp_rank(), smp.rdp_size()
    return smp.dp_rank(), smp.dp_size()


def own_batch(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """This rank's samples of the global batch."""
    number, parts = own_share()
    return [tensor.chunk(parts)[number] for tensor in tensors]


@smp.step
def integer_step(model, ids):
    output = model(ids)
    # A sum in place of a mean keeps integers; each replica's is a summand of the whole.
    loss = (output * output).sum()
    model.backward(loss)
    return output, loss


def whole_gradients(model: Any) -> dict[str, torch.Tensor | None]:
    return {
        name: None if p.grad is None else whole_of(p.grad, distribution_axis(p)).clone()
        for name, p in model.local_named_parameters()
    }


def alone(job: Any, config: dict[str, Any], *args: Any) -> Any:
    """Result of ``job`` for the whole batch in this one process."""
    smp.init({**config, "tensor_parallel_degree": 1})
    try:
        return job(*args)
    finally:
        smp.shutdown()


def layers() -> dict[str, Any]:
    """Output and gradients of one step of `Layers`; all whole."""
    module = Layers()
    fill_with_integers(module)
    model = smp.DistributedModel(module)
    ids = integers(SAMPLES, SEQUENCE, seed=99, least=0, most=9).long()
    output, _ = integer_step(model, *own_batch(ids))
    return {
        "share": own_share(),
        "output": output.concat(),
        "gradients": whole_gradients(model),
        "axes": {name: smp.utils.get_distribution_axis(p) for name, p in model.named_parameters()},
        "scaled": [name for name, _ in model.scaled_batch_reducer_named_parameters()],
        "default": [name for name, _ in model.default_reducer_named_parameters()],
    }


def outputs_of_layers() -> dict[str, torch.Tensor]:
    """Results of distributed layers for this rank's samples, beside those of plain ones."""
    found = {}
    for shape in ((SAMPLES, WIDTH), (SAMPLES, 3, WIDTH), (SAMPLES, 2, 3, WIDTH)):
        for bias in (True, False):
            layer = smp.nn.DistributedLinear(WIDTH, 5, bias=bias)
            fill_with_integers(layer)
            plain = nn.Linear(WIDTH, 5, bias=bias)
            plain.load_state_dict({n: _whole(p) for n, p in layer.named_parameters()})
            (states,) = own_batch(integers(*shape, seed=5, least=-3, most=3))
            found[f"linear of {shape}, bias {bias}"] = (layer(states), plain(states))
    for shape in ((SAMPLES,), (SAMPLES, 3), (SAMPLES, 2, 3)):
        (ids,) = own_batch(integers(*shape, seed=6, least=0, most=9).long())
        table = integers(10, WIDTH, seed=7)
        for options in ({}, {"padding_idx": 2}, {"scale_grad_by_freq": True}):
            layer = smp.nn.DistributedEmbedding(10, WIDTH, _weight=table, **options)
            plain = nn.Embedding(10, WIDTH, _weight=table, **options)
            found[f"embedding of {shape}, {options}"] = (layer(ids), plain(ids))
    return {what: (ours.detach(), theirs.detach()) for what, (ours, theirs) in found.items()}


def slices_of_an_embedding() -> dict[str, torch.Tensor]:
    """The documented shortcuts: numbers of the whole group in, this rank's slices for it out."""
    table = integers(10, WIDTH, seed=7)
    ids = integers(SAMPLES, 3, seed=6, least=0, most=9).long()
    layer = smp.nn.DistributedEmbedding(
        10, WIDTH, _weight=table, _skip_allgather=True, _skip_scatter_and_merge=True
    )
    mine = slice_of(nn.functional.embedding(ids, table), -1)
    return {"ours": layer(ids).detach(), "plain": mine}


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return whole_of(parameter.detach(), distribution_axis(parameter))


HEADS, HIDDEN, VOCABULARY = 4, 16, 11
SIZES = {"num_layers": 2, "num_attention_heads": HEADS, "attention_head_size": 4,
         "hidden_size": HIDDEN, "intermediate_size": 24, "vocab_size": VOCABULARY,
         "num_positions": SEQUENCE, "use_normal_initialization": True,
         "initializer_range": 0.3}  # fmt: skip
PRE = {"pre_layernorm": True, "post_layernorm": False}
CAUSAL = {"causal_mask_size": SEQUENCE}
#: The kinds of language models that published jobs train, small.
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {**PRE, **CAUSAL, "activation": "gelu_new", "scale_attn_by_layer_idx": True},
    "bert": {"num_token_types": 2},
    "gptj": {**PRE, **CAUSAL, "num_positions": 0, "rotary_dim": 2, "parallel_attn_output": True,
             "use_qkv_bias": False, "use_attn_dense_bias": False, "use_lm_head_bias": True,
             "tie_input_output_embedding": False},
    "gptneo": {**PRE, **CAUSAL, "attention_layers": ("global", "local"), "window_size": 2,
               "scale_attention_scores": False},
    "alibi": {"pre_layernorm": True, **CAUSAL, "use_alibi": True, "num_positions": 0,
              "query_key_layer_scaling": True, "fused_bias_gelu": True},
    "flash": {**PRE, **CAUSAL, "flash_attention": True, "activation": "relu"},
    "words": {**PRE, **CAUSAL, "vocab_size": 12, "distribute_embedding": True},
    "untied words": {"vocab_size": 12, "distribute_embedding": True, "use_lm_head_bias": True,
                     "tie_input_output_embedding": False},
    "decoder": {**CAUSAL, "add_cross_attention": True, "fused_softmax": False},
}  # fmt: skip


class Models(nn.Module):
    def __init__(self, kinds: list[str], dropout: float, **more: Any) -> None:
        super().__init__()
        drop = {"attention_dropout_prob": dropout, "hidden_dropout_prob": dropout, **more}
        self.models = nn.ModuleDict(
            {
                kind: smp.nn.DistributedTransformerLMHead(**{**SIZES, **drop, **KINDS[kind]})
                for kind in kinds
            }
        )

    def forward(self, ids, mask, types, cross):
        losses = []
        for model in self.models.values():
            more = (cross, mask) if model.add_cross_attention else ()
            losses.append(model((ids, mask, types, None, *more, ids))[0])
        return torch.stack(losses)


@smp.step
def model_step(model, ids, mask, types, cross):
    losses = model(ids, mask, types, cross)
    model.backward(losses.sum())
    return losses


def language_models(
    kinds: list[str],
    dropout: float = 0.0,
    checkpoint: bool = False,
    steps: int = 2,
    fused: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Losses of some steps of SGD, or of the fused optimizer of that name, and the gradients of the
    last; in 64 bits."""
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(smp.dp_rank())
        counted = _count_scores()
        model = smp.DistributedModel(Models(kinds, dropout, **more))
        kind = getattr(smp.optimizers, fused) if fused else torch.optim.SGD
        optimizer = smp.DistributedOptimizer(kind(model.parameters(), lr=0.1))
        if checkpoint:
            for one in model.get_module().models.values():
                for layer in one.transformer.seq_layers.children():
                    smp.set_activation_checkpointing(layer.attention)
                    smp.set_activation_checkpointing(layer.output)
        ids = integers(SAMPLES, SEQUENCE, seed=1, least=0, most=VOCABULARY - 1).long()
        types = integers(SAMPLES, SEQUENCE, seed=2, least=0, most=1).long()
        # The last position of some samples is masked; 1 says so.
        mask = torch.zeros(SAMPLES, SEQUENCE)
        mask[::3, -1] = 1
        cross = integers(SAMPLES, SEQUENCE, HIDDEN, seed=3).double() / 2
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            result = model_step(model, *own_batch(ids, mask, types, cross))
            losses.append(result.reduce_mean().detach())
            optimizer.step()
        norm = smp.clip_grad_norm_(model.parameters(), 1e-3)
        group = smp.CommGroup.DP_GROUP
        return {
            "losses": torch.stack(smp.allgather(torch.stack(losses), group)).mean(0),
            "gradients": whole_gradients(model),
            "norm": norm,
            "scores": counted(),
        }
    finally:
        torch.set_default_dtype(torch.float32)


def _count_scores() -> Callable[[], tuple[int, int]]:
    """Counts, until asked, forwards of local attention layers, and how often they made scores."""
    layer = smp.nn.DistributedAttentionLayer
    plain = {name: getattr(layer, name) for name in ("_attend", "_context")}
    counts = dict.fromkeys(plain, 0)

    def counting(name: str) -> Callable[..., Any]:
        def counted(self: Any, *args: Any) -> Any:
            counts[name] += not smp.is_tracing()
            return plain[name](self, *args)

        return counted

    for name in plain:
        setattr(layer, name, counting(name))

    def found() -> tuple[int, int]:
        for name, function in plain.items():
            setattr(layer, name, function)
        return counts["_attend"], counts["_context"]

    return found


def dropped(probability: float) -> dict[str, torch.Tensor]:
    """Ones after dropout where ranks hold the same, and where each has its own."""
    drop = random_streams.dropout
    ones = torch.ones(4096)
    return {
        "common": drop(ones, probability, True, own=False),
        "own": drop(ones, probability, True, own=True),
    }


def first_values(scale: float) -> dict[str, torch.Tensor]:
    """Whole initial values, after a script seeded each rank in its own way."""
    torch.manual_seed(int(scale * smp.rank()))
    module = smp.nn.DistributedTransformerLayer(**{**LAYER})
    return {name: whole_of(p.detach(), distribution_axis(p)).clone()
            for name, p in module.named_parameters()}  # fmt: skip


LAYER = {"num_attention_heads": HEADS, "attention_head_size": 4, "hidden_size": HIDDEN,
         "intermediate_size": 24}  # fmt: skip
