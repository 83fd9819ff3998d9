"""Sharded data parallelism with PyTorch's own FSDP over the backend smddp."""

import os

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("smddp")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
torch.manual_seed(0)

images, digits = (torch.tensor(array) for array in load_digits(return_X_y=True))
images, digits = images.float().to(device) / 16, digits.to(device)

# [train]
mesh = dist.init_device_mesh(device.type, (size,))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for _epoch in range(5):
    for batch in torch.randperm(1536).split(64):
        own = batch[rank::size]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[own]), digits[own])
        loss.backward()  # each rank gets the gradients of its own shard
        optimizer.step()
# [end train]

with torch.no_grad():
    right = model(images[-256:]).argmax(dim=1) == digits[-256:]
if rank == 0:
    print(f"FSDP over {dist.get_backend()}, {size} ranks: accuracy {right.float().mean():.1%}")
dist.destroy_process_group()
