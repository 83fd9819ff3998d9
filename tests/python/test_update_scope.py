# SPDX-License-Identifier: Apache-2.0
"""Scopes that copies of an optimizer show of its updates."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._sharding.update_scope import UpdateScope, measured_scope
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.optimizers import FusedAdam, FusedLAMB, FusedNovoGrad
from torch import nn

Step = Callable[[dict[str, Any], nn.Parameter, torch.Tensor, dict[str, Any]], None]


class Each(torch.optim.Optimizer):
    """Steps each parameter by a function of group, parameter, gradient and state."""

    def __init__(self, parameters: Any, update: Step, lr: float = 0.1) -> None:
        self.update = update
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(group, parameter, parameter.grad, self.state[parameter])


class Early(Each):
    """Has state before its first step."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, adagrad)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"] = torch.full_like(parameter, 0.1)


class NeedsClosure(Each):
    def step(self, closure: Any) -> Any:  # type: ignore[override]
        return closure()


def adagrad(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    held["sum"].add_(grad.square())
    p.addcdiv_(grad, held["sum"].sqrt(), value=-group["lr"])


def lion(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    mean = held.setdefault("mean", torch.zeros_like(p))
    p.add_(torch.lerp(mean, grad, 0.1).sign(), alpha=-group["lr"])
    mean.lerp_(grad, 0.01)


def normalised(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    p.add_(grad / grad.norm(), alpha=-group["lr"])


def by_rows(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    p.addcdiv_(grad, grad.square().mean(-1, keepdim=True).sqrt(), value=-group["lr"])


def matrices_decay(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    p.mul_(0.99 if p.dim() > 1 else 1.0).add_(grad, alpha=-group["lr"])


def clipped_at_times(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    p.add_(grad * min(1.0, 50 / float(grad.norm())), alpha=-group["lr"])


def preconditions_late(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    held["step"] = held.get("step", 0) + 1
    p.add_(grad / (grad.norm() if held["step"] > 25 else 1.0), alpha=-group["lr"])


def noisy(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    p.add_(grad + torch.randn_like(p), alpha=-group["lr"])


def idle(group: Any, p: Any, grad: torch.Tensor, held: Any) -> None:
    """Changes nothing."""


def parameters() -> list[nn.Parameter]:
    net = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Conv2d(3, 4, 3))
    return list(net.parameters())


@pytest.mark.parametrize(
    ("make", "scope"),
    [
        (lambda ps: torch.optim.AdamW(ps, amsgrad=True), "ELEMENT"),
        (lambda ps: torch.optim.SGD(ps, lr=0.0, momentum=0.9), "ELEMENT"),
        (torch.optim.Adagrad, "ELEMENT"),
        (FusedAdam, "ELEMENT"),
        (lambda ps: Each(ps, lion), "ELEMENT"),
        (Early, "ELEMENT"),
        (torch.optim.Adafactor, "PARAMETER"),
        (lambda ps: torch.optim.Muon([p for p in ps if p.dim() == 2]), "PARAMETER"),
        (FusedNovoGrad, "PARAMETER"),
        (lambda ps: Each(ps, normalised), "PARAMETER"),
        (lambda ps: Each(ps, by_rows), "PARAMETER"),
        (lambda ps: Each(ps, matrices_decay), "PARAMETER"),
        (lambda ps: Each(ps, clipped_at_times), "PARAMETER"),
        (lambda ps: Each(ps, preconditions_late), "PARAMETER"),
        (FusedLAMB, "MODEL"),
        (lambda ps: Each(ps, noisy), "MODEL"),
        (lambda ps: Each(ps, idle), None),
        (lambda ps: NeedsClosure(ps, lion), None),
    ],
)
def test_scopes_are_measured(make: Callable[[Any], Any], scope: str | None) -> None:
    optimizer = make(parameters())
    before = torch.random.get_rng_state()

    found = measured_scope(optimizer)

    assert (None if found is None else found.name) == scope
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_is_tried_stays_as_it_was() -> None:
    own = parameters()
    before = [p.clone() for p in own]
    optimizer = torch.optim.SGD(own, lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)

    measured_scope(optimizer)

    assert not optimizer.state
    assert all(torch.equal(p, value) for p, value in zip(own, before, strict=True))


def test_scopes_have_names() -> None:
    assert UpdateScope.named("element") is UpdateScope.ELEMENT
    with pytest.raises(SMPValidationError, match="update_scope='tensor'"):
        UpdateScope.named("tensor")
