# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_hugging_face.py, and one process for comparison. Doubles, no dropout."""

from __future__ import annotations

import copy
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from jobs.tensor_jobs import own_batch
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis, whole_of
from smdistributed.modelparallel.torch._state.tensor_states import to_plain
from torch import nn

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 31, 7, 16, 2, 4
BATCH, STEPS, HALF = 8, 5, 2

_GPT = {
    "vocab_size": VOCABULARY,
    "n_positions": 12,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_BERT = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 12,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def made(kind: str) -> nn.Module:
    """The model of Hugging Face, the same in every process."""
    torch.manual_seed(7)
    model: nn.Module
    if kind == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT))
    elif kind == "gpt2_untied":
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**_GPT, tie_word_embeddings=False)
        )
    elif kind == "gpt2_of_three_heads":
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**{**_GPT, "n_embd": 12, "n_head": 3})
        )
    elif kind == "gpt2_without_head":
        model = _WithHead(transformers.GPT2Model(transformers.GPT2Config(**_GPT)))
    elif kind == "gptj":
        model = transformers.GPTJForCausalLM(transformers.GPTJConfig(**_GPT, rotary_dim=2))
    elif kind == "gptneo":
        model = transformers.GPTNeoForCausalLM(
            transformers.GPTNeoConfig(
                vocab_size=VOCABULARY,
                max_position_embeddings=12,
                hidden_size=WIDTH,
                num_layers=LAYERS,
                num_heads=HEADS,
                attention_types=[[["global", "local"], 1]],
                window_size=3,
                resid_dropout=0.0,
                embed_dropout=0.0,
                attention_dropout=0.0,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    elif kind == "bert":
        model = transformers.BertForMaskedLM(transformers.BertConfig(**_BERT))
    elif kind == "roberta":
        model = transformers.RobertaForMaskedLM(
            transformers.RobertaConfig(
                **{**_BERT, "max_position_embeddings": 14, "pad_token_id": 1}
            )
        )
    else:
        raise ValueError(kind)
    model = model.double()
    with torch.no_grad():  # biases and norms begin as 0 and 1, with which mistakes would not show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


class _WithHead(nn.Module):
    """A script's own head on a model of Hugging Face."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.head(hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, masks with padding at the end of some samples, and labels."""
    generator = torch.Generator().manual_seed(100 + step)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, -2:] = 0
    return ids, mask, labels


@smp.step
def train_step(model, ids, mask, labels):
    output = model(input_ids=ids, attention_mask=mask, labels=labels)
    model.backward(output["loss"])
    return output["loss"], output["logits"]


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # Without a floor, gradients that are zero but for rounding would be made whole steps.
    return torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-4)


def wrapped(kind: str, annotated: bool = True) -> tuple[Any, Any]:
    module = made(kind)
    smp.set_tensor_parallelism(module, enabled=annotated)
    model = smp.DistributedModel(module)
    return model, smp.DistributedOptimizer(_optimizer(model))


def train(kind: str) -> dict[str, Any]:
    """Losses, gradients of the first step (not where state is flat) and the trained values, under
    Hugging Face's names."""
    return _trained(*wrapped(kind), range(STEPS))


def _trained(model: Any, optimizer: Any, steps: range) -> dict[str, Any]:
    losses, gradients = [], {}
    for step in steps:
        optimizer.zero_grad()
        loss, _ = train_step(model, *own_batch(*batch(step)))
        losses.append(smp.allgather(loss.reduce_mean(), smp.DP_GROUP))
        if step == 0 and model.sharded is None:
            gradients = plain_gradients(model)
        optimizer.step()
    return {
        "losses": [torch.stack(values).mean().item() for values in losses],
        "gradients": gradients,
        "state": model.plain_state_dict(),
        "distributed": [type(m).__name__ for m in model.distributed_modules()],
        "named": set(model.state_dict()),
    }


def train_and_save(kind: str, folder: str, partial: bool, annotated: bool = True) -> dict[str, Any]:
    """The first steps, and a checkpoint."""
    model, optimizer = wrapped(kind, annotated)
    seen = _trained(model, optimizer, range(HALF))
    part = {key: seen[key] for key in ("losses", "gradients")}
    smp.save_checkpoint(folder, "half", partial=partial, user_content=part)
    return seen


def resume_and_train(
    kind: str, folder: str, partial: bool, annotated: bool = True
) -> dict[str, Any]:
    """The other steps, from that checkpoint; losses and gradients are those of both jobs."""
    model, optimizer = wrapped(kind, annotated)
    # Nothing of what is made here may show.
    model.load_state_dict({n: torch.full_like(v, 9) for n, v in model.state_dict().items()})
    before = smp.resume_from_checkpoint(folder, partial=partial)
    seen = _trained(model, optimizer, range(HALF, STEPS))
    losses = before["losses"] + seen["losses"]
    return {**seen, "losses": losses, "gradients": before["gradients"]}


def loaded_state(kind: str, folder: str) -> Any:
    model, _ = wrapped(kind)
    smp.resume_from_checkpoint(folder, "half", partial=False, load_optimizer=False)
    return model.plain_state_dict()


def pretrained() -> bool:
    """True if the split model gives back the state dict of the plain one that it has loaded, and
    takes its own as it is."""
    entries = made("gpt2").state_dict()
    model, _ = wrapped("gpt2")
    model.load_state_dict(entries)
    again = model.plain_state_dict()
    same = all(torch.equal(again[name], value) for name, value in entries.items())
    own = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict({name: value + 1 for name, value in own.items()})
    return same and all(torch.equal(model.state_dict()[n], v + 1) for n, v in own.items())


def optimizer_state(kind: str) -> dict[str, Any]:
    """Moments after a step, whole, and whether loading them gives each rank its slices again."""
    model, optimizer = wrapped(kind)
    _trained(model, optimizer, range(1))
    own = copy.deepcopy(optimizer.orig_state_dict()["state"])
    whole = copy.deepcopy(optimizer.state_dict())  # it may share memory with what is zeroed
    with torch.no_grad():
        for moments in optimizer.state.values():
            moments["exp_avg"].zero_()
    optimizer.load_state_dict(whole)
    again = optimizer.orig_state_dict()["state"]
    same = all(torch.equal(again[n]["exp_avg"], own[n]["exp_avg"]) for n in own)
    names = optimizer.states.parameter_names()
    return {"same": same, "moments": {names[n]: s["exp_avg"] for n, s in whole["state"].items()}}


def created(kind: str = "bert") -> dict[str, torch.Tensor]:
    """Values and types of a model made in the context that has no storage for it, after a step that
    trains nothing. With several partitions it has none until then."""
    torch.manual_seed(7)
    with smp.model_creation(tensor_parallelism=True, dtype=torch.float64):
        module = _small(kind)
    assert any(p.is_meta for p in module.parameters())
    model = smp.DistributedModel(module)
    assert any(p.is_meta for p in model.parameters()) == (smp.pp_size() > 1)
    assert list(model.distributed_modules())
    with torch.no_grad():
        _outputs_step(model, *own_batch(*batch(0)))
    assert not any(p.is_meta for p in model.parameters())
    return model.plain_state_dict()


@smp.step
def _outputs_step(model, ids, mask, labels):
    return model(input_ids=ids, attention_mask=mask, labels=labels)["loss"]


def _small(kind: str) -> nn.Module:
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT))
    return transformers.BertForMaskedLM(transformers.BertConfig(**_BERT))


def created_alone(kind: str = "bert") -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    try:
        return _small(kind).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)


class Scaled(nn.Module):
    """A script's own class."""

    def __init__(self, size: int, *, start: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            start + torch.arange(size * size).view(size, size).remainder(3.0)
        )

    def forward(self, states: torch.Tensor, *, scale: float) -> dict[str, torch.Tensor]:
        return {"states": (scale * states) @ self.weight.t()}


def scripts_own_class() -> dict[str, Any]:
    """One step of a model of it, in small integers."""
    smp.tp_register_with_module(
        Scaled,
        smp.nn.DistributedLinear,
        init_hook=lambda size, *, start: ((size, size), {"bias": False}),
        forward_hook=lambda states, *, scale: ((scale * states,), {}),
        return_hook=lambda result: {"states": result},
    )
    with smp.tensor_parallelism():
        module = nn.Sequential(Scaled(4, start=-1.0))
    model = smp.DistributedModel(module)
    states = torch.arange(4 * BATCH).view(BATCH, 4).remainder(5.0)
    outputs = _scaled_step(model, *own_batch(states))
    weight = dict(model.named_parameters())["0.weight"]
    return {
        "kind": type(model.get_module()[0]).__name__,
        "outputs": outputs.concat(),
        "gradient": whole_of(weight.grad, distribution_axis(weight)),
    }


@smp.step
def _scaled_step(model, states):
    outputs = model.get_module()[0](states, scale=2.0)["states"]
    model.backward(outputs.sum())
    return outputs


def scripts_own_class_alone() -> dict[str, torch.Tensor]:
    module = Scaled(4, start=-1.0)
    states = torch.arange(4 * BATCH).view(BATCH, 4).remainder(5.0)
    outputs = module(states, scale=2.0)["states"]
    outputs.sum().backward()
    return {"outputs": outputs.detach(), "gradient": module.weight.grad}


def fed_otherwise(more: int) -> None:
    """Rank 1 is fed other numbers, or a longer sequence."""
    model, _ = wrapped("gpt2")
    ids, mask, labels = (t[: BATCH // 2] for t in batch(smp.rank()))
    if smp.rank() == 1 and more:
        ids, mask, labels = (torch.cat([t, t[:, :more]], dim=1) for t in (ids, mask, labels))
    train_step(model, ids, mask, labels)


def plain_gradients(model: Any) -> dict[str, torch.Tensor]:
    """Gradients of this partition, whole, under the names of the plain model."""
    entries = model.get_module().state_dict(keep_vars=True)
    local = set(model.local_parameters())
    mine = {
        name: whole_of(entry.grad, distribution_axis(entry)).clone()
        for name, entry in entries.items()
        if entry in local
    }
    parts = smp.allgather(mine, smp.PP_GROUP)
    return to_plain({k: v for part in parts for k, v in part.items()}, model._replaced)


def _loss(kind: str, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if kind in ("gpt2", "gpt2_untied", "gptj", "gptneo"):
        logits, labels = logits[:, :-1], labels[:, 1:]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def train_alone(kind: str) -> dict[str, Any]:
    """The same of the plain model on the whole batch, in this one process."""
    model = made(kind)
    optimizer = _optimizer(model)
    losses: list[float] = []
    gradients: dict[str, torch.Tensor] = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        ids, mask, labels = batch(step)
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        loss = _loss(kind, output["logits"], labels)
        # Transformers computes some losses in 32 bits.
        torch.testing.assert_close(output["loss"].double(), loss, rtol=1e-6, atol=1e-6)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            entries = model.state_dict(keep_vars=True)
            gradients = {n: e.grad.clone() for n, e in entries.items() if e.grad is not None}
        optimizer.step()
    return {"losses": losses, "gradients": gradients, "state": model.state_dict()}
