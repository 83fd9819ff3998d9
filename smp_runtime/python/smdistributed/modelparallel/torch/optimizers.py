# SPDX-License-Identifier: Apache-2.0
"""Optimizers under the names and signatures of Apex's fused ones, without Apex.

Adam is one kernel, the others are a handful of torch's multi-tensor operations, over all parameters
of a group. Every group carries ``step``, the number of updates, which published schedulers read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from smdistributed import _runtime
from smdistributed.modelparallel.torch._slices.whole_norms import (
    Tensors,
    WholeNorms,
    grad_of,
    with_grad,
)
from smdistributed.modelparallel.torch.exceptions import SMPValidationError

Lists = list[tuple[Tensors, Tensors]]


class _Fused(Optimizer):
    """Base of the three fused optimizers."""

    def __init__(
        self, params: Iterable[Any], set_grad_none: bool, amsgrad: bool, **defaults: Any
    ) -> None:
        name = type(self).__name__
        if amsgrad:
            raise SMPValidationError(f"{name} offers no amsgrad, as in Apex")
        beta1, beta2 = defaults["betas"]
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise SMPValidationError(f"{name}: betas are {(beta1, beta2)}; they are in [0, 1)")
        if defaults["lr"] < 0 or defaults["eps"] < 0 or defaults["weight_decay"] < 0:
            raise SMPValidationError(f"{name}: lr, eps and weight_decay are not negative")
        self._set_grad_none = set_grad_none
        super().__init__(params, defaults)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """As PyTorch's; unless given, ``set_to_none`` is what ``set_grad_none`` was."""
        super().zero_grad(self._set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps all parameters that have a gradient. Returns what ``closure`` returned, if given.

        Raises SMPValidationError for a sparse gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._before_update()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            self._update(group, [
                (parameters, [grad_of(parameter) for parameter in parameters])
                for parameters in _by_type(group["params"])
            ])  # fmt: skip
        return loss

    def _before_update(self) -> None:
        """For what needs the gradients of all groups."""

    def _update(self, group: dict[str, Any], lists: Lists) -> None:
        """Steps the parameters of a group: with their gradients, in lists of one type each."""
        raise NotImplementedError

    def _moments(self, parameters: Tensors, name: str) -> Tensors:
        moments = []
        for parameter in parameters:
            held = self.state[parameter]
            if name not in held:
                held[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            moments.append(held[name])
        return moments

    def _adam_direction(
        self, group: dict[str, Any], parameters: Tensors, grads: Tensors, own_share: float
    ) -> Tensors:
        """``m / (sqrt(v) + eps)``, corrected for the start; the moments are advanced."""
        beta1, beta2 = group["betas"]
        first, second = (
            self._moments(parameters, "exp_avg"),
            self._moments(parameters, "exp_avg_sq"),
        )
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, grads, alpha=own_share)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - beta2)
        corrected = group["bias_correction"]
        scale1 = 1 - beta1 ** group["step"] if corrected else 1.0
        scale2 = 1 - beta2 ** group["step"] if corrected else 1.0
        denominator = torch._foreach_sqrt(second)
        torch._foreach_div_(denominator, scale2**0.5)
        torch._foreach_add_(denominator, group["eps"])
        direction = torch._foreach_div(first, scale1)
        torch._foreach_div_(direction, denominator)
        return list(direction)


class FusedAdam(_Fused):
    """Adam (arXiv:1412.6980); with ``adam_w_mode`` the weight decay is decoupled from the gradient
    (AdamW, arXiv:1711.05101).

    One kernel steps all parameters of a type and device. No communication.

    Args:
        params: parameters or groups, as torch's; of 16 to 64 bits, without sparse gradients.
        lr, betas, eps, weight_decay: as torch's.
        bias_correction: divide moments by what they lack at the start.
        amsgrad: refused with SMPValidationError if set, as in Apex.
        set_grad_none: ``zero_grad`` sets gradients to None.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> weight.grad = torch.tensor([0.5])
    >>> FusedAdam([weight], lr=0.1).step()
    >>> round(weight.item(), 6)
    0.9
    """

    update_scope = "element"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        self._decoupled = adam_w_mode
        self.gradient_factor = 1.0
        """By which the kernel multiplies gradients, which stay as they are."""
        super().__init__(
            params, set_grad_none, amsgrad,
            lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay,
        )  # fmt: skip

    def _update(self, group: dict[str, Any], lists: Lists) -> None:
        beta1, beta2 = group["betas"]
        corrected = group["bias_correction"]
        for parameters, grads in lists:
            _runtime.adam_step(
                parameters,
                grads,
                self._moments(parameters, "exp_avg"),
                self._moments(parameters, "exp_avg_sq"),
                rate=group["lr"],
                beta1=beta1,
                beta2=beta2,
                epsilon=group["eps"],
                decay=group["weight_decay"],
                decoupled=self._decoupled,
                scale1=1 - beta1 ** group["step"] if corrected else 1.0,
                scale2=1 - beta2 ** group["step"] if corrected else 1.0,
                factor=self.gradient_factor,
            )


class FusedWithNorms(_Fused):
    """An optimizer that looks at whole parameters, by their norms alone: so it can step shards."""

    update_scope = "parameter"
    norms: WholeNorms = WholeNorms()
    """Source of the norms."""


class FusedLAMB(FusedWithNorms):
    """LAMB (arXiv:1904.00962): Adam's direction, scaled per parameter by norm over norm.

    Gradients are first clipped to ``max_grad_norm`` by their norm over all parameters of the model,
    those of other partitions included: every rank of a copy of the model calls ``step``.

    Args:
        params, lr, bias_correction, betas, eps, weight_decay, amsgrad, set_grad_none: as
            FusedAdam's.
        adam_w_mode: the weight decay is decoupled from the gradient.
        max_grad_norm: 0 for no clipping.
        use_nvlamb: scale parameters without weight decay, too.
        grad_averaging: the gradient's share in the first moment is ``1 - beta1``; else 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        self._decoupled = adam_w_mode
        self._nvlamb = use_nvlamb
        self._norm = 0.0
        super().__init__(
            params, set_grad_none, amsgrad,
            lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
            weight_decay=weight_decay, grad_averaging=grad_averaging, max_grad_norm=max_grad_norm,
        )  # fmt: skip

    def _before_update(self) -> None:
        self._norm = self.norms.of_gradients([p for g in self.param_groups for p in g["params"]])

    def _update(self, group: dict[str, Any], lists: Lists) -> None:
        directions = [self._direction(group, *one) for one in lists]
        if group["weight_decay"] != 0 or self._nvlamb:
            parameters = [p for own, _ in lists for p in own]
            changes = [change for own in directions for change in own]
            weights = self.norms.of(parameters, parameters)
            lengths = self.norms.of(parameters, changes)
            ratios = [
                torch.where((weight > 0) & (length > 0), weight / length, torch.ones_like(weight))
                for weight, length in zip(weights, lengths, strict=True)
            ]
            for change, ratio in zip(changes, ratios, strict=True):
                change.mul_(ratio)
        for (parameters, _), direction in zip(lists, directions, strict=True):
            torch._foreach_add_(parameters, direction, alpha=-group["lr"])

    def _direction(self, group: dict[str, Any], parameters: Tensors, grads: Tensors) -> Tensors:
        most, decay = group["max_grad_norm"], group["weight_decay"]
        if most and self._norm > most:
            grads = list(torch._foreach_mul(grads, most / self._norm))
        if decay != 0 and not self._decoupled:
            grads = list(torch._foreach_add(grads, parameters, alpha=decay))
        own_share = 1 - group["betas"][0] if group["grad_averaging"] else 1.0
        direction = self._adam_direction(group, parameters, grads, own_share)
        if decay != 0 and self._decoupled:
            torch._foreach_add_(direction, parameters, alpha=decay)
        return direction


FusedLamb = FusedLAMB


class FusedNovoGrad(FusedWithNorms):
    """NovoGrad (arXiv:1905.11286): the second moment is one number a parameter, the norm of its
    gradient, smoothed.

    Collective over the tensor-parallel group where it splits parameters, and over the shard group
    where parameters are sharded.

    Args:
        params, lr, bias_correction, betas, eps, weight_decay, amsgrad, set_grad_none: as
            FusedAdam's.
        grad_averaging: the gradient's share in the first moment is ``1 - beta1``; else 1.
        reg_inside_moment: add the weight decay to the normalised gradient before the first moment;
            else to the update.
        norm_type: 2, or 0 for the largest element.
        init_zero: begin the smoothed norm with 0; else with the first gradient's.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if norm_type not in (0, 2):
            raise SMPValidationError(f"FusedNovoGrad: norm_type is {norm_type}; it is 2 or 0")
        self._inside, self._init_zero = reg_inside_moment, init_zero
        self._norm_type = 2.0 if norm_type == 2 else float("inf")
        super().__init__(
            params, set_grad_none, amsgrad,
            lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
            weight_decay=weight_decay, grad_averaging=grad_averaging,
        )  # fmt: skip

    def _update(self, group: dict[str, Any], lists: Lists) -> None:
        norms = iter(self.norms.of(
            [p for own, _ in lists for p in own], [g for _, own in lists for g in own],
            self._norm_type,
        ))  # fmt: skip
        for parameters, grads in lists:
            self._update_alike(group, parameters, grads, [next(norms) for _ in parameters])

    def _update_alike(
        self, group: dict[str, Any], parameters: Tensors, grads: Tensors, norms: Tensors
    ) -> None:
        (beta1, beta2), decay = group["betas"], group["weight_decay"]
        smoothed = self._smoothed(parameters, norms, beta2)
        corrected = group["bias_correction"]
        scale1 = 1 - beta1 ** group["step"] if corrected else 1.0
        scale2 = (1 - beta2 ** group["step"]) ** 0.5 if corrected else 1.0
        denominators = torch._foreach_div(smoothed, scale2)
        torch._foreach_add_(denominators, group["eps"])
        direction = list(torch._foreach_div(grads, list(denominators)))
        if decay != 0 and self._inside:
            torch._foreach_add_(direction, parameters, alpha=decay)
        first = self._moments(parameters, "exp_avg")
        torch._foreach_mul_(first, beta1)
        own_share = 1 - beta1 if group["grad_averaging"] else 1.0
        torch._foreach_add_(first, direction, alpha=own_share)
        update = list(torch._foreach_div(first, scale1))
        if decay != 0 and not self._inside:
            torch._foreach_add_(update, parameters, alpha=decay)
        torch._foreach_add_(parameters, update, alpha=-group["lr"])

    def _smoothed(self, parameters: Tensors, norms: Tensors, beta2: float) -> Tensors:
        smoothed = []
        for parameter, norm in zip(parameters, norms, strict=True):
            held = self.state[parameter]
            if "exp_avg_norm" not in held:
                held["exp_avg_norm"] = torch.zeros_like(norm) if self._init_zero else norm.clone()
            before = held["exp_avg_norm"]
            if self._norm_type == 2.0:  # as squares, so that it is a moment
                value = (beta2 * before.square() + (1 - beta2) * norm.square()).sqrt()
            else:
                value = beta2 * before + (1 - beta2) * norm
            before.copy_(value)
            smoothed.append(before)
        return smoothed


def _by_type(parameters: Iterable[torch.Tensor]) -> Iterator[Tensors]:
    """Lists of one type and device, as multi-tensor operations want them."""
    lists: dict[tuple[torch.dtype, torch.device], Tensors] = {}
    for parameter in with_grad(parameters):
        lists.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    yield from lists.values()
