"""Puts the shards of a checkpoint together: one process, plain PyTorch, no job."""

import sys

import torch
from sklearn.datasets import load_digits
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_full_state_dict_from_sharded_data_parallel_checkpoint,
)
from torch import nn

state = get_full_state_dict_from_sharded_data_parallel_checkpoint(sys.argv[1])

layers: list[nn.Module] = [nn.Linear(64, 1024), nn.GELU()]
for _ in range(3):
    layers += [nn.Linear(1024, 1024), nn.GELU()]
model = nn.Sequential(*layers, nn.Linear(1024, 10))
model.load_state_dict(state)

images, digits = map(torch.tensor, load_digits(return_X_y=True))
with torch.no_grad():
    right = model(images[-256:].float() / 16).argmax(dim=1) == digits[-256:]
print(f"test accuracy in plain PyTorch: {right.float().mean():.1%}")
