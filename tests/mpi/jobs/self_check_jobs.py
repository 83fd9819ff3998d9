# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_self_check.py: a small model of many kinds of layers, checked, with a fault
planted in it where the test says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import self_check_faults
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch import model as model_module
from smdistributed.modelparallel.torch._self_check.self_check import SelfCheck
from torch import nn
from torch.nn import functional

WIDTH, CLASSES = 8, 4


class Net(nn.Module):
    """`wide`, `narrow` and `head` may go to another partition or be sliced."""

    def __init__(self, drop: float, norm: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(drop)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else nn.LayerNorm(WIDTH)
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.drop(torch.relu(self.first(x))))
        return self.head(self.norm(self.narrow(torch.relu(self.wide(x)))))


@contextlib.contextmanager
def checking(steps: int) -> Iterator[None]:
    """As with SMP_SELF_CHECK, which warm ranks do not have."""
    plain = model_module.open_self_check
    model_module.open_self_check = lambda module: SelfCheck(module, steps)
    try:
        yield
    finally:
        model_module.open_self_check = plain


def train(
    fault: str = "",
    *,
    drop: float = 0.0,
    norm: bool = True,
    passes: int = 1,
    steps: int = 2,
    optimizer: str = "AdamW",
    wrapped: bool = True,
    clip: bool = False,
    sliced: bool = True,
    batch: int = 8,
) -> str:
    """The line of the check, or the text of what it raises."""
    torch.manual_seed(3)
    net = Net(drop, norm)
    if smp.pp_size() > 1:
        for part in (net.wide, net.narrow, net.head):
            smp.set_partition(part, 1)
    if smp.tp_size() > 1 and sliced:
        smp.set_tensor_parallelism(net.wide)
        smp.set_tensor_parallelism(net.narrow)
    with checking(steps):
        model = smp.DistributedModel(net, backward_passes_per_step=passes)
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "lr": 1e-2}]
    made: Any = optimizer_of(optimizer)(groups, lr=1e-3)
    if wrapped:
        made = smp.DistributedOptimizer(made)
    plant = self_check_faults.FAULTS.get(fault)
    assert plant is not None or not fault
    if plant is not None:
        model.register_post_partition_hook(lambda model, _: plant(model, made))
    generator = torch.Generator().manual_seed(100 + replica())
    try:
        for step in range(steps * passes + 1):
            if step % passes == 0:
                made.zero_grad()
            x = torch.randn(batch, WIDTH, generator=generator)
            y = torch.randint(0, CLASSES, (batch,), generator=generator)
            step_function(model, x, y)
            if (step + 1) % passes == 0:
                if clip and model.sharded is not None:
                    made.clip_master_grads(0.1)
                elif clip:
                    smp.clip_grad_norm_(model.parameters(), 0.1)
                made.step()
    except smp.exceptions.SMPSelfCheckError as error:
        return str(error)
    assert model.self_check is not None
    return model.self_check.outcome.line()


def replica() -> int:
    return smp.rdp_rank() if smp.state.cfg.prescaled_batch else smp.dp_rank()


def optimizer_of(name: str) -> Callable[..., Any]:
    kind: Callable[..., Any] = getattr(torch.optim, name, None) or getattr(smp.optimizers, name)
    return kind


@smp.step
def step_function(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    scores = model(x)
    loss = functional.cross_entropy(scores, y)
    model.backward(loss)
    return {"loss": loss, "scores": scores, "right": (scores.argmax(1) == y).sum()}
