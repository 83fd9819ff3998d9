"""Trains a classifier of handwritten digits with Lightning, over smddp: DDP, or FSDP2."""

import os
import sys

import lightning
import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

# [strategy]
ranks = int(os.environ["WORLD_SIZE"])
strategies = {
    "ddp": DDPStrategy(process_group_backend="smddp"),
    "fsdp2": ModelParallelStrategy(
        data_parallel_size=ranks, tensor_parallel_size=1, process_group_backend="smddp"
    ),
}
# [end strategy]


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def configure_model(self):
        if self.device_mesh is not None:  # of the strategy for FSDP2
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _number):
        inputs, targets = batch
        return nn.functional.cross_entropy(self.net(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(0)
images, digits = (torch.tensor(values) for values in load_digits(return_X_y=True))
data = TensorDataset(images[:1536].float() / 16, digits[:1536])
how = sys.argv[1]
trainer = lightning.Trainer(
    accelerator="auto",
    devices=ranks,
    strategy=strategies[how],
    max_epochs=5,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Digits()
trainer.fit(model, DataLoader(data, 64 // ranks, shuffle=True))

with torch.no_grad():
    scores = model.net(images[1536:].float().to(model.device) / 16).argmax(1).cpu()
accuracy = 100 * (scores == digits[1536:]).float().mean()
if dist.get_rank() == 0:
    print(f"Lightning {how} over {dist.get_backend()}, {ranks} ranks: accuracy {accuracy:.1f}%")
dist.barrier()
dist.destroy_process_group()
