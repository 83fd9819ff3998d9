# SPDX-License-Identifier: Apache-2.0
"""Accelerate and Lightning on smddp, under torchrun: frameworks_job.py HOW FOLDER.

Rank 0 writes the losses of all ranks, the trained parameters and the backend's name.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import smdistributed.dataparallel.torch.torch_smddp
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, ROWS, BATCH = 2, 32, 8


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def optimizer_of(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05)


def alone() -> dict[str, torch.Tensor]:
    """Weights that one process learns from the same global batches."""
    net = model()
    optimizer = optimizer_of(net.parameters())
    for _ in range(EPOCHS):
        for inputs, targets in DataLoader(data(), BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
    return net.state_dict()


def accelerate_ddp() -> dict[str, torch.Tensor]:
    from accelerate import Accelerator  # noqa: PLC0415

    dist.init_process_group("smddp")  # before: on the CPU Accelerate knows gloo only
    accelerator = Accelerator(cpu=True)
    net = model()
    net, optimizer, batches = accelerator.prepare(
        net, optimizer_of(net.parameters()), DataLoader(data(), BATCH // dist.get_world_size())
    )
    assert isinstance(net, nn.parallel.DistributedDataParallel)
    for _ in range(EPOCHS):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
    gathered = accelerator.gather(torch.tensor([float(accelerator.process_index)]))
    assert gathered.tolist() == [float(rank) for rank in range(dist.get_world_size())]
    return accelerator.unwrap_model(net).state_dict()


def accelerate_fsdp2() -> dict[str, torch.Tensor]:
    """FSDP2 as torch has it: Accelerate's plugin for it is for GPUs only."""
    from accelerate import Accelerator  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    dist.init_process_group("smddp")
    accelerator = Accelerator(cpu=True)
    net = model()
    fully_shard(net, mesh=_mesh())
    optimizer, batches = accelerator.prepare(
        optimizer_of(net.parameters()), DataLoader(data(), BATCH // dist.get_world_size())
    )
    for _ in range(EPOCHS):
        for inputs, targets in batches:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(net(inputs), targets))
            optimizer.step()
    return {name: value.full_tensor() for name, value in net.state_dict().items()}


def _mesh() -> Any:
    return dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))


def lightning(strategy: Any) -> Any:
    import lightning  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def configure_model(self) -> None:
            if self.device_mesh is not None:
                fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: Any, _number: int) -> torch.Tensor:
            inputs, targets = batch
            return nn.functional.cross_entropy(self.net(inputs), targets)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self.net.parameters())

    module = Module()
    ranks = int(os.environ["WORLD_SIZE"])
    sampler = torch.utils.data.DistributedSampler(
        data(), ranks, int(os.environ["RANK"]), shuffle=False
    )
    trainer = lightning.Trainer(
        accelerator="cpu", devices=ranks, strategy=strategy, max_epochs=EPOCHS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, barebones=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data(), BATCH // ranks, sampler=sampler))
    return module


def lightning_ddp() -> dict[str, torch.Tensor]:
    from lightning.pytorch.strategies import DDPStrategy  # noqa: PLC0415

    return lightning(DDPStrategy(process_group_backend="smddp")).net.state_dict()


def lightning_fsdp2() -> dict[str, torch.Tensor]:
    from lightning.pytorch.strategies import ModelParallelStrategy  # noqa: PLC0415

    strategy = ModelParallelStrategy(  # by default, ranks of a host are tensor-parallel
        data_parallel_size=int(os.environ["WORLD_SIZE"]),
        tensor_parallel_size=1,
        process_group_backend="smddp",
    )
    module = lightning(strategy)
    return {name: value.full_tensor() for name, value in module.net.state_dict().items()}


def main() -> None:
    how, folder = sys.argv[1:]
    assert smdistributed.dataparallel.torch.torch_smddp.BACKEND == "smddp"
    state = globals()[how]()
    if dist.get_rank() == 0:
        torch.save({"state": state, "backend": dist.get_backend()}, f"{folder}/{how}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
