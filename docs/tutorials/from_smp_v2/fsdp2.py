"""Plain PyTorch, which knows nothing of this library: FSDP2 goes on from a sharded checkpoint of
SMP v2."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

dist.init_process_group("gloo")
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
for block in model.transformer.h:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())

# [load]
values, state = get_state_dict(model, optimizer)
content = {"model": values, "optimizer": state, "total_steps": 0}
dcp.load(content, checkpoint_id=sys.argv[2])
set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=state)
# [end load]

rate = optimizer.param_groups[0]["lr"]
if dist.get_rank() == 0:
    print(f"FSDP2 goes on from step {content['total_steps']} with the rate {rate:.5f}")
dist.destroy_process_group()
