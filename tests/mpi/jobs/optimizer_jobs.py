# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_optimizers.py: the same training by plain PyTorch and by the library."""

from __future__ import annotations

from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._ranks import log
from torch import nn


class Net(nn.Module):
    """Three layers, of which the middle one may be one of complex numbers."""

    def __init__(self, is_complex: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inp, self.out = nn.Linear(8, 8), nn.Linear(8, 3)
        self.mid = nn.Linear(8, 8)
        if is_complex:
            self.mid = nn.Module()
            self.mid.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x):
        hidden = torch.tanh(self.inp(x))
        if self.mid.weight.is_complex():
            spectrum = torch.fft.rfft(hidden.double()) * self.mid.weight
            hidden = torch.fft.irfft(spectrum, n=8).to(hidden.dtype)
        else:
            hidden = torch.tanh(self.mid(hidden))
        return self.out(hidden)


def batch(step):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(step)).double()


@smp.step
def step_function(model, x):
    loss = model(x).double().pow(2).mean()
    model.backward(loss)
    return loss


def by_shape(model):
    """Matrices by one optimizer, vectors by another, as with Muon and AdamW."""
    parameters = list(model.parameters())
    return [
        torch.optim.SGD([p for p in parameters if p.dim() > 1], lr=0.5, momentum=0.9),
        torch.optim.AdamW([p for p in parameters if p.dim() < 2], lr=0.02, eps=1e-3),
    ]


def whole_first(model):
    """The second one needs whole parameters."""
    parameters = list(model.parameters())
    return [
        torch.optim.Adagrad([p for p in parameters if p.dim() < 2], lr=0.02),
        torch.optim.Adafactor([p for p in parameters if p.dim() > 1], lr=0.02),
    ]


def alone(model):
    return [torch.optim.Adam(model.parameters(), lr=0.02, eps=1e-3)]


def rest(model):
    return [torch.optim.SGD([*model.mid.parameters(), *model.out.parameters()], lr=0.5,
                            momentum=0.9)]  # fmt: skip


MAKES = {"by shape": by_shape, "whole first": whole_first, "alone": alone, "rest": rest}


def by_method(optimizer, parameters):
    optimizer.add_param_group({"params": parameters, "lr": 0.25})


def by_inner_method(optimizer, parameters):
    by_method(getattr(optimizer, "optimizer", optimizer), parameters)


def by_groups(optimizer, parameters):
    settings = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    optimizer.param_groups.append({**settings, "lr": 0.25, "params": parameters})


def by_parameters(optimizer, parameters):
    optimizer.param_groups[0]["params"] += parameters


ADDS = {"method": by_method, "inner method": by_inner_method, "groups": by_groups,
        "parameters": by_parameters}  # fmt: skip


def plain_steps(model, optimizers, steps):
    for step in steps:
        for one in optimizers:
            one.zero_grad()
        model(batch(step)).double().pow(2).mean().backward()
        for one in optimizers:
            one.step()


def smp_steps(model, optimizers, steps, order="together"):
    for step in steps:
        if order == "together":
            for one in optimizers:
                one.zero_grad()
        step_function(model, batch(step))
        for one in optimizers:
            one.step()
            if order == "each by itself":
                one.zero_grad()


def wrap(module, make):
    model = smp.DistributedModel(module)
    return model, [smp.DistributedOptimizer(one) for one in make(model.get_module())]


def worst(state, wanted):
    return max((state[name].to(value.dtype) - value).abs().max().item()
               for name, value in wanted.items())  # fmt: skip


def train(make, order="together", add="", add_at=0, is_complex=False, dtype=torch.float64):
    """The largest difference of trained weights; of the script's group of ``inp``, which comes
    before step ``add_at``, among them."""
    kind = torch.complex128 if is_complex else None
    plain, module = (Net(is_complex).to(dtype) for _ in range(2))
    for net in (plain, module):
        if kind is not None:
            net.mid.weight.data = net.mid.weight.data.to(kind)
    theirs = MAKES[make](plain)
    model, ours = wrap(module, MAKES[make])
    for step in range(add_at + 3):
        if add and step == add_at:
            ADDS[add](theirs[0], list(plain.inp.parameters()))
            ADDS[add](ours[0], list(model.get_module().inp.parameters()))
        plain_steps(plain, theirs, [step])
        smp_steps(model, ours, [step], order)
    return worst(model.state_dict(), dict(plain.state_dict()))


def save(folder, make, add):
    """Weights after steps behind a checkpoint."""
    model, optimizers = wrap(Net().double(), MAKES[make])
    if add:
        ADDS[add](optimizers[0], list(model.get_module().inp.parameters()))
    smp_steps(model, optimizers, range(3))
    smp.save_checkpoint(folder, "saved")
    smp_steps(model, optimizers, range(3, 6))
    return {name: value.clone() for name, value in model.state_dict().items()}


def resume(folder, make, add):
    model, optimizers = wrap(Net().double(), MAKES[make])
    if add:
        ADDS[add](optimizers[0], list(model.get_module().inp.parameters()))
    smp.resume_from_checkpoint(folder)
    smp_steps(model, optimizers, range(3, 6))
    return {name: value.clone() for name, value in model.state_dict().items()}


def reload_one():
    """True, by parameter, if the state dict of one of two optimizers leaves the other's alone."""
    model, optimizers = wrap(Net().double(), by_shape)
    smp_steps(model, optimizers, range(2))
    saved = optimizers[0].state_dict()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    smp_steps(model, optimizers, range(2, 4))
    after = {name: value.clone() for name, value in model.state_dict().items()}
    optimizers[0].load_state_dict(saved)
    now = model.state_dict()
    return [torch.equal(value, (before if value.dim() > 1 else after)[name])
            for name, value in now.items()]  # fmt: skip


def overflow():
    """Scales, and whether anything changed, when the gradients of two optimizers overflow."""
    model = smp.DistributedModel(Net())
    scale = {"dynamic_loss_scale": True, "init_scale": 2.0**8, "delayed_shift": 1}
    optimizers = [smp.DistributedOptimizer(one, **scale) for one in by_shape(model)]
    seen = []
    for spoiled in (False, True, False):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for one in optimizers:
            one.zero_grad()
        step_function(model, batch(0) * (float("inf") if spoiled else 1))
        for one in optimizers:
            one.step()
        changed = {name for name, value in model.state_dict().items()
                   if not torch.equal(value, before[name])}  # fmt: skip
        seen.append((len(changed), [one.loss_scale for one in optimizers]))
    return seen


def one_scale():
    model = smp.DistributedModel(Net())
    first, second = by_shape(model)
    smp.DistributedOptimizer(first, dynamic_loss_scale=True)
    smp.DistributedOptimizer(second)


def clip_by_hand(max_norm):
    """Norms of the gradients that an update sees, behind a clipping of the script's."""
    model, (optimizer,) = wrap(Net().double(), alone)
    seen = []

    def look(inner, *_):
        squares = sum(float(p.grad.square().sum()) for p in inner.param_groups[0]["params"])
        seen.append(sum(smp.allgather(squares, smp.DP_GROUP)) ** 0.5)

    optimizer.optimizer.register_step_pre_hook(look)
    step_function(model, 100 * batch(0))
    norm = optimizer.clip_master_grads(max_norm)
    optimizer.step()
    return norm, seen


def early(passes, steps):
    """Largest differences between replicas after an update after so many steps, of which the first
    window was dropped."""
    model = smp.DistributedModel(Net(), backward_passes_per_step=passes)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    step_function(model, batch(50 + smp.dp_rank()).float())
    optimizer.zero_grad()
    for step in range(steps):
        step_function(model, batch(100 * step + smp.dp_rank()).float())
    optimizer.step()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    return [worst(one, own) for one in smp.allgather(own, smp.WORLD)]


class Normalised(torch.optim.Optimizer):
    """Optimizer of an unknown class, which looks at whole parameters."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p.add_(p.grad / p.grad.norm(), alpha=-0.05)


class Together(Normalised):
    """Looks at all of them."""

    @torch.no_grad()
    def step(self, closure=None):
        own = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in own]).norm()
        for p in own:
            p.add_(p.grad / norm, alpha=-0.05)


class Signs(Normalised):
    """Element by element."""

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                p.add_(p.grad.sign(), alpha=-0.05)


class Averages(Normalised):
    """As schedule-free ones: to be evaluated are averages of the weights that were trained."""

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                held = self.state[p]
                p.add_(p.grad, alpha=-0.05)
                held.setdefault("average", torch.zeros_like(p)).lerp_(p, 0.5)

    @torch.no_grad()
    def _exchange(self):
        for p in self.param_groups[0]["params"]:
            if "average" in self.state[p]:
                trained = p.clone()
                p.copy_(self.state[p]["average"])
                self.state[p]["average"].copy_(trained)

    def eval(self):
        self._exchange()

    def train(self):
        self._exchange()


def unknown(kind):
    """Worst difference of weights, with an optimizer of a class of the script's."""
    make = {"normalised": Normalised, "together": Together, "signs": Signs}[kind]
    plain = Net().double()
    theirs = [make(plain.parameters())]
    model, ours = wrap(Net().double(), lambda module: [make(module.parameters())])
    plain_steps(plain, theirs, range(3))
    smp_steps(model, ours, range(3))
    return worst(model.state_dict(), dict(plain.state_dict()))


@smp.step
def outputs(model, x):
    return model(x)


def evaluate(dtype=torch.float64):
    """Differences from plain PyTorch's outputs: trained, with exchanged weights, and back."""
    plain = Net().to(dtype)
    theirs = Averages(plain.parameters())
    model, (ours,) = wrap(Net().to(dtype), lambda module: [Averages(module.parameters())])
    plain_steps(plain, [theirs], range(3))
    smp_steps(model, [ours], range(3))
    seen = []
    for exchange in (None, "eval", "train"):
        if exchange:
            getattr(theirs, exchange)()
            getattr(ours, exchange)()
        with torch.no_grad():
            seen.append((plain(batch(9)) - outputs(model, batch(9)).concat()).abs().max().item())
    return seen


def change_masters(publish):
    model, (optimizer,) = wrap(Net().double(), alone)
    smp_steps(model, [optimizer], range(1))
    with torch.no_grad():
        for group in optimizer.param_groups:
            for master in group["params"]:
                master.zero_()
    if publish:
        optimizer.publish_masters()
    return step_function(model, batch(0)).reduce_mean().item()


class Words(nn.Module):
    """Few rows of its table are used, and its head is not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.words, self.out, self.head = nn.Embedding(64, 8), nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.words(x.argmax(1)))


class Kept(torch.optim.SGD):
    """Leaves as they are parameters that the script asks it to."""

    def step(self, closure=None):
        own = [p for p in self.param_groups[1]["params"] if p.grad is not None]
        before = [p.detach().clone() for p in own]
        super().step()
        for p, value in zip(own, before, strict=True):
            p.data.copy_(value)


def audit(kept):
    """Texts of the audit on this rank, as warnings and as information."""
    kind = Kept if kept else torch.optim.SGD
    warned, told = [], []
    with (
        mock.patch.object(log, "warning_here", warned.append),
        mock.patch.object(log, "info", told.append),
    ):
        model = smp.DistributedModel(Words().double())
        module = model.get_module()
        rest = [*module.words.parameters(), *module.head.parameters()]
        groups = [{"params": rest}, {"params": list(module.out.parameters())}]
        optimizer = smp.DistributedOptimizer(
            kind(groups, lr=0.1), **({"update_scope": "element"} if kind is Kept else {})
        )
        smp_steps(model, [optimizer], range(5))
    return [[text for text in texts if "the first 3 updates" in text] for texts in (warned, told)]
