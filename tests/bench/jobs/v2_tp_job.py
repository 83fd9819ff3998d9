# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench v2: a Llama whose layers are split over the ranks, by torch.sagemaker and by
the plan of torch.distributed.tensor.parallel. Prints the bytes that a rank sends in a step, by who.

    v2_tp_job.py FOLDER
"""

from __future__ import annotations

import json
import math
import os
import sys

import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from sent_bytes import SentBytes
from smdistributed.modelparallel.torch._slices import parameter_slices
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, LENGTH = 4, 128
CONFIG = LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=3,
    num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=LENGTH, use_cache=False,
    tie_word_embeddings=False,
)  # fmt: skip
WHOLE = (Replicate(),)
#: Of a layer; what is not in it is whole on each rank, as after ``transform``.
PLAN = {
    "self_attn": PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": WHOLE[0]},
        desired_input_kwarg_layouts={"hidden_states": WHOLE[0]},
    ),
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(),
    "mlp": PrepareModuleInput(input_layouts=WHOLE, desired_input_layouts=WHOLE),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG)


def peer() -> nn.Module:
    made = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in made.model.layers:
        parallelize_module(layer, mesh, PLAN)
    return made


def main() -> None:
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    dist.init_process_group("gloo", f"file://{sys.argv[1]}/store", rank=rank, world_size=size)
    torch.set_num_threads(1)
    tsm.init({"tensor_parallel_degree": size})
    models = {"ours": tsm.transform(model()), "torch": peer()}
    words = torch.randint(0, CONFIG.vocab_size, (BATCH, LENGTH))  # alike on all ranks, by the seed
    losses: dict[str, float] = {}

    def step(name: str) -> None:
        loss = models[name](input_ids=words, labels=words)["loss"]
        loss.backward()
        losses[name] = loss.item()

    for name in models:  # the first batches are compared, and groups made
        step(name)
    before = parameter_slices.exchange().bytes_sent
    step("ours")
    sent = {"ours": parameter_slices.exchange().bytes_sent - before}
    with SentBytes(size) as counter:
        step("torch")
    sent["torch"] = counter.total
    assert math.isclose(losses["ours"], losses["torch"], rel_tol=1e-5), losses
    if rank == 0:
        print("RESULT " + json.dumps(sent), flush=True)
    dist.barrier()
    tsm.state.reset()
    dist.destroy_process_group()


main()
