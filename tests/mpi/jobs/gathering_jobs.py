# SPDX-License-Identifier: Apache-2.0
"""Ways in which values of sharded parameters and tensors of modules reach whoever needs them, and
what ranks do in test_gathering.py. All have the same batch, so that means of two are exact."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 8


@dataclasses.dataclass
class Inner:
    values: torch.Tensor


@dataclasses.dataclass
class Outer:
    inner: Inner


class Slots:
    __slots__ = ("values",)

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


class Matrix(nn.Module):
    """x @ weight, which gives it away by ``leaves`` and takes it back by ``comes``."""

    def __init__(self, leaves: Callable[[Any, torch.Tensor, dict[str, Any]], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) * 0.4)
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.leaves = leaves

    def forward(self, x: torch.Tensor, into: dict[str, Any]) -> Any:
        return self.leaves(self, x @ self.weight + self.bias, into)


def _into_argument(module: Matrix, y: torch.Tensor, into: dict[str, Any]) -> None:
    into["y"] = y


def _onto_itself(module: Matrix, y: torch.Tensor, into: dict[str, Any]) -> None:
    module.y = y


HIDDEN: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "nested": (lambda _m, y, _i: Outer(Inner(y)), lambda _m, o, _i: o.inner.values),
    "slots": (lambda _m, y, _i: Slots(y), lambda _m, o, _i: o.values),
    "closure": (lambda _m, y, _i: lambda: y, lambda _m, o, _i: o()),
    "argument": (_into_argument, lambda _m, _o, into: into.pop("y")),
    "attribute": (_onto_itself, lambda m, _o, _i: m.__dict__.pop("y")),
    "set": (lambda _m, y, _i: {y}, lambda _m, o, _i: o.pop()),
}


class Hides(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        leaves, self.comes = HIDDEN[how]
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.block = Matrix(leaves)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        into: dict[str, Any] = {}
        given = self.block(torch.tanh(self.first(x)), into)
        return self.last(torch.tanh(self.comes(self.block, given, into)))


def _zeroes(y: torch.Tensor, _x: torch.Tensor) -> torch.Tensor:
    y[..., ::2] = 0
    return y


CHANGED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda y, _x: F.relu(y, inplace=True),
    "add": lambda y, x: y.add_(x),
    "mul": lambda y, x: y.mul_(x.tanh()),
    "part": _zeroes,
}


class Changes(nn.Module):
    """Layer that returns, for [batch, time, width], a view, which is changed in place."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.mid = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last, self.change = nn.Linear(WIDTH, 3), CHANGED[how]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x[:, None].repeat(1, 5, 1))
        return self.last(self.change(self.mid(h), h).mean(1))


class Positions(nn.Module):
    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * WIDTH, WIDTH))
        self.view = view

    def forward(self) -> torch.Tensor:
        return self.view(self.weight)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda w: w[:WIDTH],
    "transposed": lambda w: w.t()[:, :WIDTH],
    "whole": lambda w: w,
    "chunk": lambda w: w.chunk(2)[1],
}


class Returns(nn.Module):
    """A module returns a view of its parameter, which its caller reads."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.table, self.last = Positions(VIEWS[how]), nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(x @ self.table()[:WIDTH]))


class Scaled(torch.autograd.Function):
    """Keeps a weight for the backward by itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


class Reads(nn.Module):
    """A forward reads parameters in another way than by their module."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.first, self.mid = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 3)
        self.kept = [self.mid.weight, self.first.weight]  # as torch's LSTM keeps its

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.first(x))
        if self.how == "recomputed":
            both = [checkpoint(lambda h, f=f: torch.tanh(self.mid(f(h))), h, use_reentrant=True)
                    for f in (torch.sin, torch.cos)]  # fmt: skip
            return self.last(both[0] * both[1])
        y = self.last(torch.tanh(self.mid(h)))
        if self.how == "parameters":
            y = y + 0.01 * sum(p.pow(2).sum() for p in self.parameters())
        elif self.how == "kept":
            y = y + 0.01 * torch.cat([w.view(-1) for w in self.kept]).pow(2).sum()
        elif self.how == "function":
            y = y + Scaled.apply(h, self.mid.weight)[:, :3]
        elif self.how == "functional":
            y = y + torch.func.functional_call(self.last, dict(self.last.named_parameters()), h)
        return y


KINDS = {"hides": Hides, "changes": Changes, "returns": Returns, "reads": Reads}


def _mse(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


def _with_penalty(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_(True)
    out = model(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.mse_loss(out, y) + grad.pow(2).mean()


def _with_weights(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())


LOSSES = {"mse": _mse, "penalty": _with_penalty, "weights": _with_weights}


def _batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(8, WIDTH, generator=generator).double(),
            torch.randn(8, 3, generator=generator).double())  # fmt: skip


def _made(kind: str, how: str) -> nn.Module:
    torch.manual_seed(3)
    module: nn.Module = KINDS[kind](how)
    return module.double()


def train(kind: str, how: str, loss: str = "mse", hooked: bool = False, steps: int = 3):
    """The largest difference from plain PyTorch: of losses, and of weights."""
    loss_of = LOSSES[loss]

    def hook(module: nn.Module) -> None:
        if hooked:  # a mask, and one that reads a weight
            module.first.weight.register_hook(lambda g: g * (g > 0))
            module.mid.weight.register_hook(lambda g: g + 0.1 * module.mid.weight.detach())

    plain, module = _made(kind, how), _made(kind, how)
    hook(plain)
    hook(module)
    own = torch.optim.SGD(plain.parameters(), lr=0.1)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value = loss_of(model, x, y)
        model.backward(value)
        return value

    apart = 0.0
    for number in range(steps):
        own.zero_grad()
        wanted = loss_of(plain, *_batch(number))
        wanted.backward()
        own.step()
        optimizer.zero_grad()
        got = step(model, *_batch(number)).reduce_mean()
        optimizer.step()
        apart = max(apart, (got - wanted).abs().item())
    state = model.state_dict()
    weights = max((state[n] - v).abs().max().item() for n, v in plain.state_dict().items())
    return apart, weights, 0 if model.sharded is None else model.sharded.store.use()["live"]


LOOKS: dict[str, Callable[[nn.Parameter], Any]] = {
    "norm": lambda p: p.norm(),
    "item": lambda p: p[0, 0].item(),
    "list": lambda p: p.tolist(),
    "copy": copy.deepcopy,
    "compare": lambda p: torch.equal(p, p),
    "numpy": lambda p: p.detach().numpy(),
    "write": nn.init.zeros_,
    "print": repr,
    "together": lambda p: torch.nn.utils.parameters_to_vector([p]),
    "write data": lambda p: p.data.mul_(0.5),
    "stride": lambda p: p.as_strided((2, 2), (2, 1)),
}


def look(how: str):
    """The error of reading a weight between steps, and that shapes and new tensors do without."""
    module = _made("reads", "plain")
    model = smp.DistributedModel(module)
    weight = module.mid.weight
    torch.zeros_like(weight), weight.detach(), weight.shape, next(model.parameters()).dtype
    assert weight.new_tensor([1, 2]).tolist() == [1, 2] and weight.t().new(3).shape == (3,)
    try:
        LOOKS[how](weight)
    except SMPStepError as error:
        return "SMPStepError", str(error)
    except RuntimeError as error:
        return "RuntimeError", str(error)
    return "", ""


def gathered():
    """Norms of weights inside of smp.gathered_parameters, and what a change there says."""
    plain, module = _made("reads", "plain"), _made("reads", "plain")
    model = smp.DistributedModel(module)
    norms = []
    for what in (model, module.mid, module.mid.weight, [module.mid.weight, module.last.bias]):
        with smp.gathered_parameters(what):
            norms.append(module.mid.weight.norm().item())
    text = ""
    try:
        with smp.gathered_parameters(model), torch.no_grad():
            module.mid.weight.add_(1)
    except SMPStepError as error:
        text = str(error)
    return norms, plain.mid.weight.norm().item(), text


def frozen(layers: int = 12, width: int = 32):
    """Most bytes that are live, where weights are frozen and adapters trained, and the limit."""
    torch.manual_seed(0)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Linear(width, width)
            self.adapter = nn.Linear(width, width, bias=False)
            self.weight.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(self.weight(x) + self.adapter(x))

    module = nn.Sequential(*(Layer() for _ in range(layers))).double()
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    )

    @smp.step
    def step(model: Any, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).pow(2).mean()
        model.backward(loss)
        return loss

    for number in range(3):
        optimizer.zero_grad()
        step(model, torch.randn(4, width, generator=torch.Generator().manual_seed(number)).double())
        optimizer.step()
    unit = (2 * width * width + width) * 8
    return model.sharded.store.use()["peak_live"], smp.state.cfg.sdp_max_live_parameters * 8 + unit


class Renames(nn.Linear):
    """Keeps its entries under other names, and in one tensor."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self._register_state_dict_hook(self._give)
        self._register_load_state_dict_pre_hook(self._take)

    @staticmethod
    def _give(_module: nn.Module, state: dict[str, Any], prefix: str, _local: Any) -> None:
        rows = state.pop(prefix + "weight"), state.pop(prefix + "bias")[:, None]
        state[prefix + "both"] = torch.cat(rows, 1)

    def _take(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        if prefix + "both" in state:
            both = state.pop(prefix + "both")
            state[prefix + "weight"], state[prefix + "bias"] = both[:, :-1], both[:, -1]


def renamed():
    """Differences of a saved state dict from plain PyTorch's, and of one that was loaded."""
    KINDS["renames"] = lambda _how: nn.Sequential(nn.Linear(WIDTH, WIDTH), Renames())
    plain, other = _made("renames", ""), _made("renames", "")
    with torch.no_grad():
        other[1].weight.mul_(2)
    model = smp.DistributedModel(_made("renames", ""))

    def apart(module: nn.Module) -> float:
        got, want = model.state_dict(), module.state_dict()
        assert list(got) == list(want)
        return max((got[name] - value).abs().max().item() for name, value in want.items())

    saved = apart(plain)
    model.load_state_dict(other.state_dict())
    return saved, apart(other)


def gather_slices():
    """A weight that tensor-parallel ranks split is whole on none."""
    module = nn.Sequential(nn.Linear(4, 4))
    smp.set_tensor_parallelism(module[0])
    model = smp.DistributedModel(module)
    with smp.gathered_parameters(model):
        pass
