# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_self_check.py: a small model of many kinds of layers, checked, with a fault planted
in it where the test says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import self_check_faults
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
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
        self.factor = 1.0
        """Scripts anneal such attributes between steps."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.drop(torch.relu(self.first(x))))
        return self.head(self.norm(self.narrow(torch.relu(self.wide(x))))) * self.factor


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
    does: str = "",
    several: str = "",
    hook: str = "",
) -> str:
    """The line of the check, or the text of what it raises. ``several``: "halves" are in an
    optimizer each; of "alternating" ones the second steps after every other step; "some" are in
    none."""
    torch.manual_seed(3)
    net = Net(drop, norm)
    HOOKS.get(hook, lambda _: None)(net.first.weight)
    if smp.pp_size() > 1:
        for part in (net.wide, net.narrow, net.head):
            smp.set_partition(part, 1)
    if smp.tp_size() > 1 and sliced:
        smp.set_tensor_parallelism(net.wide)
        smp.set_tensor_parallelism(net.narrow)
    with checking(steps):
        model = smp.DistributedModel(net, backward_passes_per_step=passes)
    made, others = make_optimizers(model, optimizer, wrapped, several)
    OPTIMIZER_HOOKS.get(hook, lambda _: None)(made)
    plant = self_check_faults.FAULTS.get(fault)
    assert plant is not None or not fault
    if plant is not None:
        model.register_post_partition_hook(lambda model, _: plant(model, made))
    generator = torch.Generator().manual_seed(100 + replica())
    try:
        for step in range(steps * passes + 1):
            if step % passes == 0:
                made.zero_grad()
                for other in others if several == "halves" or step % 2 == 0 else []:
                    other.zero_grad()
            net.factor = 1.0 + step / 4
            x = torch.randn(8, WIDTH, generator=generator)
            y = torch.randint(0, CLASSES, (8,), generator=generator)
            step_function(model, x, y, does)
            if (step + 1) % passes == 0:
                if clip and model.sharded is not None:
                    made.clip_master_grads(0.1)
                elif clip:
                    smp.clip_grad_norm_(model.parameters(), 0.1)
                made.step()
                for other in others if several == "halves" or step % 2 == 1 else []:
                    other.step()
    except smp.exceptions.SMPSelfCheckError as error:
        return str(error)
    assert model.self_check is not None
    return model.self_check.outcome.line()


HOOKS: dict[str, Callable[[nn.Parameter], Any]] = {
    "of a gradient": lambda p: p.register_hook(lambda gradient: gradient * 3),
    "of a sum": lambda p: p.register_post_accumulate_grad_hook(lambda _: None),
}
OPTIMIZER_HOOKS: dict[str, Callable[[Any], Any]] = {
    "of the optimizer": lambda made: made.optimizer.register_step_pre_hook(lambda *_: None),
}


def outside() -> tuple[torch.Tensor | None, torch.Tensor]:
    """The gradient of a parameter that the step's function has besides the model, under the check,
    and what it is in plain PyTorch."""
    net = Net(0.0, norm=False)
    x = torch.ones(4, WIDTH)
    wanted = net(x).square().mean().detach()
    with checking(1):
        model = smp.DistributedModel(net)
    weight = nn.Parameter(torch.ones(()))
    weighed_step(model, x, weight)
    return weight.grad, wanted


@smp.step(non_split_inputs=["weight"])
def weighed_step(model: nn.Module, x: torch.Tensor, weight: nn.Parameter) -> None:
    model.backward(model(x).square().mean() * weight)


def make_optimizers(
    model: nn.Module, optimizer: str, wrapped: bool, several: str
) -> tuple[Any, list[Any]]:
    """Optimizer of ``optimizer``'s name, and another one if there are several."""
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "lr": 1e-2}]
    others: list[Any] = []
    if several:
        groups.pop()
    if several in ("halves", "alternating"):
        others.append(smp.DistributedOptimizer(torch.optim.SGD(biases, lr=1e-2, momentum=0.9)))
    made = optimizer_of(optimizer)(groups, lr=1e-3)
    return smp.DistributedOptimizer(made) if wrapped else made, others


def replica() -> int:
    return smp.rdp_rank() if smp.state.cfg.prescaled_batch else smp.dp_rank()


class Nested(torch.optim.Optimizer):
    """Leaves its update to another optimizer inside."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.inner = torch.optim.SGD(self.param_groups, lr=lr)

    def step(self, closure: Any = None) -> None:
        self.inner.step()


class Noisy(torch.optim.SGD):
    """Langevin dynamics: the update has noise."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(torch.randn_like(parameter) * 1e-3)


def optimizer_of(name: str) -> Callable[..., Any]:
    own = {"Nested": Nested, "Noisy": Noisy}.get(name)
    kind: Callable[..., Any]
    kind = own or getattr(torch.optim, name, None) or getattr(smp.optimizers, name)
    return kind


@smp.step
def step_function(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, does: str
) -> dict[str, torch.Tensor]:
    if does == "draws":
        x = functional.dropout(x, 0.5)
    if does == "sums":
        dist.all_reduce(torch.ones(1), group=smp.get_dp_process_group())
    scores = model(x)
    loss = functional.cross_entropy(scores, y)
    model.backward(loss)
    return {"loss": loss, "scores": scores, "right": (scores.argmax(1) == y).sum()}
