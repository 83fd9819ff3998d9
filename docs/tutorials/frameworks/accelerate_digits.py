"""Trains a classifier of handwritten digits with Accelerate, over smddp."""

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# [begin]
dist.init_process_group("smddp")
accelerator = Accelerator(cpu=not torch.cuda.is_available())
# [end begin]

torch.manual_seed(0)
images, digits = (torch.tensor(values) for values in load_digits(return_X_y=True))
data = TensorDataset(images[:1536].float() / 16, digits[:1536])
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
batches = DataLoader(data, 64 // dist.get_world_size(), shuffle=True)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)

for _epoch in range(5):
    for inputs, targets in batches:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()

with torch.no_grad():
    scores = model(images[1536:].float().to(accelerator.device) / 16).argmax(1).cpu()
accuracy = 100 * (scores == digits[1536:]).float().mean()
accelerator.print(
    f"Accelerate over {dist.get_backend()}, {accelerator.num_processes} ranks: "
    f"accuracy {accuracy:.1f}%"
)
dist.destroy_process_group()
