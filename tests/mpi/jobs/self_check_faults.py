# SPDX-License-Identifier: Apache-2.0
"""Faults of a library, planted where the check has to find them: each takes the model and its
optimizer when modules are where they stay."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch

Plant = Callable[[Any, Any], None]


def after_gradients(model: Any, act: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """`act` changes the gradients that a step leaves, by parameter."""
    steps, plain = model.steps, model.steps.after_backward

    def changed(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        act(gradients_of(model))

    steps.after_backward = changed


def gradients_of(model: Any) -> dict[str, torch.Tensor]:
    """Gradients of this rank's parameters, or of its pieces of masters."""
    masters = smp.state.optimizer._masters if smp.state.optimizer is not None else None
    if masters is None:
        return {name: p.grad for name, p in model.local_named_parameters() if p.grad is not None}
    names = model.sharded.names
    return {
        names[piece.parameter]: run.slice_of(piece, run.parameter.grad)
        for run in masters.runs
        if run.parameter.grad is not None
        for piece in run.pieces
    }


def lost_reduction(model: Any, _: Any) -> None:
    """One parameter keeps the gradient of its own replica."""
    own: dict[str, torch.Tensor] = {}
    plain = model.replicas.average

    def average(parameters: Any) -> None:
        weight = model.get_module().first.weight
        own["first.weight"] = weight.grad.clone()
        plain(parameters)
        weight.grad.copy_(own["first.weight"])

    model.replicas.average = average


def wrong_divisor(model: Any, _: Any) -> None:
    factor = float(smp.state.cfg.microbatches)
    after_gradients(model, lambda grads: [g.mul_(factor) for g in grads.values()] and None)


def swapped_parameters(model: Any, _: Any) -> None:
    def swap(grads: dict[str, torch.Tensor]) -> None:
        if {"first.bias", "norm.bias"} <= grads.keys():
            kept = grads["first.bias"].clone()
            grads["first.bias"].copy_(grads["norm.bias"])
            grads["norm.bias"].copy_(kept)

    after_gradients(model, swap)


def lost_gradient(model: Any, _: Any) -> None:
    """A hook by which the gradient of a module leaves its rank does not run."""

    def drop(grads: dict[str, torch.Tensor]) -> None:
        if "head.weight" in grads:
            grads["head.weight"].zero_()

    after_gradients(model, drop)


def stale_weight(model: Any, _: Any) -> None:
    """The rank of a module computes with values of another time."""
    wide = model.get_module().wide
    if not model.ownership.owns(wide):
        return

    def enter(module: Any, _args: Any) -> None:
        module.kept = module.weight.data
        module.weight.data = module.weight.data + 0.5

    def leave(module: Any, _args: Any, _output: Any) -> None:
        module.weight.data = module.kept

    wide.register_forward_pre_hook(enter)
    wide.register_forward_hook(leave)


def missing_microbatch(model: Any, _: Any) -> None:
    """Takes every second microbatch out of the gradients."""
    plain = type(model).backward
    calls = itertools.count()

    class Forgetful(type(model)):  # type: ignore[misc]
        def backward(self, loss: Any, *args: Any) -> None:
            plain(self, loss * 0.0 if next(calls) % 2 else loss, *args)

    model.__class__ = Forgetful


def wrong_rate(_: Any, optimizer: Any) -> None:
    """Runs of one group are stepped with the settings of another."""
    if smp.pp_rank() == smp.pp_size() - 1:
        groups = optimizer.param_groups
        groups[0]["params"], groups[1]["params"] = groups[1]["params"], groups[0]["params"]


def rate_of_one_rank(_: Any, optimizer: Any) -> None:
    """A scheduler runs on one rank alone."""
    if smp.rank() == smp.size() - 1:
        optimizer.param_groups[0]["lr"] *= 3


def not_updated(model: Any, optimizer: Any) -> None:
    """An update passes one parameter over."""
    kept: list[torch.Tensor] = []
    weight = dict(model.local_named_parameters()).get("narrow.weight")
    if weight is None:
        return
    own = optimizer.optimizer
    own.register_step_pre_hook(lambda *_: kept.append(weight.detach().clone()))
    own.register_step_post_hook(lambda *_: put(weight, kept.pop()))


def put(weight: torch.Tensor, value: torch.Tensor) -> None:
    weight.data.copy_(value)


def narrow_sums(model: Any, _: Any) -> None:
    """Gradients are added up in 16 bits."""

    def narrow(grads: dict[str, torch.Tensor]) -> None:
        for gradient in grads.values():
            gradient.copy_(gradient.bfloat16())

    after_gradients(model, narrow)


def other_slices(model: Any, _: Any) -> None:
    """The slices of a gradient are put together in another order."""

    def turn(grads: dict[str, torch.Tensor]) -> None:
        if "wide.weight" in grads:
            gradient = grads["wide.weight"]
            gradient.copy_(gradient.roll(1, 0))

    after_gradients(model, turn)


def drifting_copy(model: Any, _: Any) -> None:
    if smp.rank() == smp.size() - 1:
        with torch.no_grad():
            model.get_module().frozen.bias.add_(1e-4)


FAULTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        lost_reduction, wrong_divisor, swapped_parameters, lost_gradient, stale_weight,
        missing_microbatch, wrong_rate, rate_of_one_rank, not_updated, narrow_sums, other_slices,
        drifting_copy,
    )
}  # fmt: skip
