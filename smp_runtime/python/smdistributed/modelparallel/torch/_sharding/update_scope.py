# SPDX-License-Identifier: Apache-2.0
"""Scope of an optimizer's update of one element, and what a job has for it to look at.

The scope is known by construction, said by the optimizer or the script, or measured by trying;
where it is none of these, the optimizer is refused wherever it would matter.
"""

from __future__ import annotations

import enum

import torch

from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._sharding.optimizer_trial import OptimizerTrial
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.optimizers import FusedWithNorms


class UpdateScope(enum.IntEnum):
    """Values on which the update of an element depends, beside numbers of its group."""

    ELEMENT = 1  # its own gradients and state: any piece can be stepped anywhere
    PARAMETER = 2  # its whole parameter
    MODEL = 3  # other parameters, too

    @classmethod
    def named(cls, name: str) -> UpdateScope:
        """Raises SMPValidationError for a name that is none."""
        try:
            return cls[name.upper()]
        except (KeyError, AttributeError):
            raise SMPValidationError(
                f"smp.DistributedOptimizer got update_scope={name!r}; it is 'element', "
                "'parameter' or 'model'"
            ) from None


#: By construction; a subclass may do anything, and is measured.
_KNOWN: dict[type[torch.optim.Optimizer], UpdateScope] = {
    **dict.fromkeys(
        (
            *(torch.optim.ASGD, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam),
            *(torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam),
            *(torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD, torch.optim.SparseAdam),
        ),
        UpdateScope.ELEMENT,
    ),
    **dict.fromkeys((torch.optim.Adafactor, torch.optim.Muon), UpdateScope.PARAMETER),
    torch.optim.LBFGS: UpdateScope.MODEL,
}


def check_scope(optimizer: torch.optim.Optimizer, declared: str | None) -> UpdateScope | None:
    """Raises SMPUnsupportedError where a rank has less than ``optimizer`` looks at, or might.

    Returns its scope; None where nothing depends on it, so that it was not looked for.
    """
    if declared is None:
        declared = getattr(optimizer, "update_scope", None)
    said = None if declared is None else UpdateScope.named(declared)
    available = _available(optimizer)
    if said is None and available is UpdateScope.MODEL:
        return None
    if isinstance(optimizer, FusedWithNorms):
        if ranks.tp_size() == 1 or shard_plan() is None:
            return UpdateScope.ELEMENT  # and the norms of whole parameters, which it is given
        # Norms of masters are added up over shards, not over slices beside them.
        raise SMPUnsupportedError(_refusal(optimizer, UpdateScope.PARAMETER, UpdateScope.ELEMENT))
    scope = said or _KNOWN.get(type(optimizer)) or measured_scope(optimizer)
    if scope is None or scope > available:
        raise SMPUnsupportedError(_refusal(optimizer, scope, available))
    return scope


def _available(optimizer: torch.optim.Optimizer) -> UpdateScope:
    """The most that the optimizer of one rank has at once, whatever it is."""
    how, tensor_ranks = shard_plan(), ranks.tp_size() > 1
    cut = how is not None and how.cuts_parameters and (how.on_demand or tensor_ranks)
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    if cut or (tensor_ranks and any(distribution_axis(p) is not None for p in parameters)):
        return UpdateScope.ELEMENT
    shared = how is not None and max(how.degree, how.own_degree) > 1
    return UpdateScope.PARAMETER if shared or ranks.mp_size() > 1 else UpdateScope.MODEL


def _refusal(
    optimizer: torch.optim.Optimizer, scope: UpdateScope | None, available: UpdateScope
) -> str:
    kind = type(optimizer).__name__
    has = (
        "ranks have pieces of parameters"
        if available is UpdateScope.ELEMENT
        else "ranks have some of the parameters each"
    )
    needs = {
        None: "of which it is not known what its update of an element depends on: a copy of it "
        "could not step small parameters",
        UpdateScope.PARAMETER: "whose update needs whole parameters",
        UpdateScope.MODEL: "whose update needs all parameters at once",
    }[scope]
    mend = (
        "shard_optimizer_state without tensor parallelism, which keeps parameters whole"
        if available is UpdateScope.ELEMENT and scope is not UpdateScope.MODEL
        else "neither sharding nor model parallelism"
    )
    return (
        f"smp.DistributedOptimizer got {kind}, {needs}; here {has} (sharded data parallelism, "
        "optimizer-state sharding, tensor parallelism or a pipeline). Use an optimizer that "
        f"updates each element by itself, such as AdamW, or {mend}. If it does update each "
        "element by itself, or each parameter, say so: smp.DistributedOptimizer(optimizer, "
        "update_scope='element'), or 'parameter'"
    )


def measured_scope(optimizer: torch.optim.Optimizer) -> UpdateScope | None:
    """Scope that copies of ``optimizer`` show that step a few small parameters as they are, each by
    itself, and in pieces; None where they cannot step, or nothing changes.

    >>> weight = torch.nn.Parameter(torch.ones(3, 2))
    >>> measured_scope(torch.optim.SGD([weight], lr=0.1, momentum=0.9)).name
    'ELEMENT'
    >>> measured_scope(torch.optim.Adafactor([weight])).name
    'PARAMETER'
    """
    for dtype in (torch.float64, torch.float32):  # some kernels are for one of them alone
        trial = OptimizerTrial(optimizer, dtype)
        if trial.steps():
            if not trial.agrees(trial.each_alone()):
                return UpdateScope.MODEL
            return UpdateScope.ELEMENT if trial.agrees(trial.pieces()) else UpdateScope.PARAMETER
    return None
