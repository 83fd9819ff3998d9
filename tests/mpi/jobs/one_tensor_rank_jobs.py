# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_one_tensor_rank.py: annotated models with tensor_parallel_degree 1."""

from __future__ import annotations

from typing import Any
from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from jobs import hugging_face_jobs
from jobs.tensor_jobs import integers, own_batch
from jobs.tensor_state_jobs import SEQUENCE, WIDTH, WORDS, Layers, batch, loss_of
from smdistributed.modelparallel.torch._tensor import first_values
from torch import nn

STEPS = 4


@smp.step
def _step(model, ids):
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    model.backward(output["loss"])
    return output["loss"]


def published_script(distributed: bool) -> dict[str, Any]:
    """As language-model scripts of 2022 build and checkpoint a model, in whose command line a
    distributed transformer is asked for, whatever the degree."""
    torch.manual_seed(7)
    config = transformers.GPT2Config(**hugging_face_jobs._GPT)
    with smp.model_creation(
        tensor_parallelism=smp.tp_size() > 1 or distributed,
        dtype=torch.float64,
        zero_init=not distributed,
        attention_in_fp32=False,
        query_key_layer_scaling=False,
        fused_softmax=False,
        fused_dropout=False,
        fused_bias_gelu=False,
    ):
        module = transformers.AutoModelForCausalLM.from_config(config)
    model = smp.DistributedModel(module, trace_device="gpu")
    m = model.get_module()
    layers = m.transformer.seq_layers if distributed else m.transformer.h
    if distributed:
        smp.set_activation_checkpointing(layers, strategy="each", pack_args_as_tuple=True)
    else:
        for layer in layers.children():
            smp.set_activation_checkpointing(layer)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for number in range(STEPS):
        optimizer.zero_grad()
        ids, _, _ = hugging_face_jobs.batch(number)
        loss = _step(model, *own_batch(ids)).reduce_mean()
        losses.append(torch.stack(smp.allgather(loss, smp.DP_GROUP)).mean().item())
        optimizer.step()
    return {
        "losses": losses,
        "layers": [type(layer).__name__ for layer in layers.children()],
        "state": model.plain_state_dict(),
    }


def integer_layers(annotated: bool) -> dict[str, Any]:
    """One step of plain layers in small integers: outputs, gradients, and what became of them."""
    module = Layers(plain=True)
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=number))
    module.before.bias.requires_grad_(False)
    smp.set_tensor_parallelism(module, enabled=annotated)
    model = smp.DistributedModel(module)

    @smp.step
    def step(model, ids):
        output = model(ids)
        model.backward(loss_of(output, ids))
        return output

    output = step(model, *own_batch(batch(0))).concat()
    assert output.shape[1:] == (SEQUENCE, 3)
    return {
        "output": output,
        "gradients": {name: p.grad for name, p in model.named_parameters()},
        "types": [type(part).__name__ for part in model.get_module().children()],
        "state": model.state_dict(),
        "moved": [p.device.type for p in model.cpu().parameters()],
    }


class Odd(nn.Module):
    """A script's own class, of whose parameter the library cannot know what to make."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(WORDS, WIDTH))


def of_other_names() -> tuple[str, list[str]]:
    """Class of the module's replacement, and warnings."""
    smp.tp_register_with_module(
        Odd, smp.nn.DistributedEmbedding, init_hook=lambda: ((WORDS, WIDTH), {})
    )
    module = nn.Sequential(Odd())
    smp.set_tensor_parallelism(module)
    said: list[str] = []
    with mock.patch.object(first_values, "warning", said.append):
        model = smp.DistributedModel(module)
    return type(model.get_module()[0]).__name__, said
