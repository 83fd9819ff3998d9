# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_activations.py."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from models import WIDTH, make_batches
from smdistributed.modelparallel.torch.patches.checkpoint import checkpoint, checkpoint_sequential
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

BATCH = 16


class Block(nn.Module):
    """Dropout, running statistics, and counts of what ran."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.inner = nn.Linear(WIDTH, 64 * WIDTH)
        self.outer = nn.Linear(64 * WIDTH, WIDTH)
        self.forwards = 0
        self.seen = 0
        self.register_forward_hook(self._note)

    @staticmethod
    def _note(module, _args, _output):
        module.seen += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        return x + self.dropout(self.outer(torch.tanh(self.inner(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, how: str = "", dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.blocks = nn.Sequential(*(Block(dropout) for _ in range(6)))
        self.head = nn.Linear(WIDTH, 4)
        self.how = how

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        if self.how == "call":
            for block in self.blocks:
                x = checkpoint(block, x)
        elif self.how.startswith("sequential"):
            x = checkpoint_sequential(self.blocks, x, strategy=self.how.partition(" ")[2])
        else:
            x = self.blocks(x)
        return self.head(x)


@smp.step
def train_step(model, tokens, labels):
    loss = F.cross_entropy(model(tokens), labels)
    model.backward(loss)
    return loss


def train(
    how: str, pins: dict[str, int] | None = None, batch_size: int = BATCH, dropout: float = 0.2
):
    """Losses, trained state, forwards and hooks of each local block, and what was offloaded."""
    torch.manual_seed(5)
    module = Net(how, dropout)
    for name, partition in (pins or {}).items():
        smp.set_partition(module.get_submodule(name), partition)
    model = smp.DistributedModel(module)
    if how.startswith("set "):
        smp.set_activation_checkpointing(module.blocks, strategy=how[4:])
    elif how == "blocks":
        for block in module.blocks:
            smp.set_activation_checkpointing(block)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    torch.manual_seed(11)
    losses = []
    for batch in make_batches(3, batch_size):
        optimizer.zero_grad()
        losses.append([one.item() for one in train_step(model, *batch).outputs])
        optimizer.step()
    counts = {
        name: (block.forwards, block.seen)
        for name, block in module.blocks.named_children()
        if block in set(model.local_modules())
    }
    store = smp.state.activation_store
    stats = None
    if store is not None:
        held = store.stats()
        stats = (held.put, held.taken, held.slow_bytes, held.fast_bytes)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    return losses, state, counts, stats


class Outer(nn.Module):
    """Passes structures, keywords and a parameter to a checkpointed module."""

    def __init__(self) -> None:
        super().__init__()
        self.far = Inner()
        self.scale = nn.Parameter(torch.full((WIDTH,), 2.0))

    def forward(self, x):
        out = checkpoint(self.far, {"x": x, "pair": (x * 2, None)}, scale=self.scale, power=2)
        return out["y"] + out["z"][0]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((WIDTH,), 3.0))

    def forward(self, tree, *, scale, power):
        y = (tree["x"] * self.weight * scale) ** power
        return {"y": y, "z": [tree["pair"][0] * self.weight], "n": None}


@smp.step
def sum_step(model, x):
    out = model(x).sum()
    model.backward(out)
    return out


def pass_structures(partition: int):
    module = Outer()
    smp.set_partition(module.far, partition)
    model = smp.DistributedModel(module)
    x = torch.arange(4.0 * WIDTH).view(4, WIDTH).requires_grad_()
    out = sum_step(model, x).reduce_sum().item()
    grads = {name: p.grad.tolist() for name, p in model.local_named_parameters()}
    return out, None if x.grad is None else x.grad.tolist(), grads


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Linear(WIDTH, WIDTH)
        self.far = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.near(self.far(x))


def checkpoint_a_split_module(use_torch: bool):
    module = nn.Sequential(Split())
    smp.set_partition(module[0].far, smp.pp_size() - 1)
    if use_torch:
        inner = module[0]
        plain = inner.forward
        inner.forward = lambda x: torch_checkpoint(plain, x, use_reentrant=False)
    model = smp.DistributedModel(module)
    if not use_torch:
        smp.set_activation_checkpointing(module[0])
    return sum_step(model, torch.ones(4, WIDTH)).reduce_sum().item()


def grow_memory(how: str):
    """Bytes that the graph of one microbatch holds on this rank, by saved tensors."""
    torch.manual_seed(5)
    module = Net(how)
    model = smp.DistributedModel(module)
    if how == "set each":
        smp.set_activation_checkpointing(module.blocks, strategy="each")
    saved = {}

    def pack(tensor):
        saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(make_batches(1, BATCH)[0][0])
    parameters = {p.data_ptr() for p in model.parameters()}
    return sum(size for pointer, size in saved.items() if pointer not in parameters)
