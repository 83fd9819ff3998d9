# SPDX-License-Identifier: Apache-2.0
"""A plain script with FSDP2, which knows nothing of this library: goes on from a checkpoint of
torch.distributed.checkpoint, trains a step and saves another.

    python -m torch.distributed.run --nproc-per-node 2 fsdp2_script.py SOURCE TARGET RESULT FLAT
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard


def main(source: str, target: str, result: str, flat: bool) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=32, n_positions=12, n_embd=16, n_layer=3, n_head=4, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model, shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1))  # columns
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)

    def state() -> dict[str, object]:
        return {
            "model": get_model_state_dict(model),
            "optimizer": get_optimizer_state_dict(model, optimizer, options=options),
        }

    content = state()
    dcp.load(content, checkpoint_id=source)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=content["model"],
        optim_state_dict=content["optimizer"],
        options=options,
    )
    ids = torch.arange(14).reshape(2, 7)
    model.eval()
    logits = model(ids).logits
    loaded = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    dcp.save(state(), checkpoint_id=target)
    after = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    if dist.get_rank() == 0:
        found = {"logits": logits, "loaded": loaded, "after": after,
                 "lr": optimizer.param_groups[0]["lr"]}  # fmt: skip
        torch.save(found, result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:4], flat=sys.argv[4] == "flat")
