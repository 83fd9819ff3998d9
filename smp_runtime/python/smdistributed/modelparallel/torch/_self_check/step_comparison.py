# SPDX-License-Identifier: Apache-2.0
"""One step, or the update behind it, beside the same in plain PyTorch, on the first rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from smdistributed.modelparallel.torch._self_check.findings import (
    Divisors,
    Finding,
    Outcome,
    Tally,
    cause_of_gradient,
    cause_of_update,
    names_of,
)
from smdistributed.modelparallel.torch._self_check.module_watch import Sizes, first_that_differs
from smdistributed.modelparallel.torch._self_check.plain_step import Arithmetic
from smdistributed.modelparallel.torch._self_check.reference_model import (
    Gradients,
    PlainRun,
    ReferenceModel,
)
from smdistributed.modelparallel.torch._self_check.step_values import (
    Leaves,
    leaves_of,
    results_apart,
)
from smdistributed.modelparallel.torch._self_check.tolerances import (
    FLOOR,
    allowed_after_update,
    difference,
    mean_size,
)
from smdistributed.modelparallel.torch._self_check.whole_states import WholeState

_ROUNDINGS = 4  # as many times what 16 bits leave: another order of sums leaves as much again


def compare_results(
    found: Sequence[Sequence[Leaves]],
    run: PlainRun,
    wide: PlainRun | None,
    sizes: Sizes,
    how: Arithmetic,
    outcome: Outcome,
) -> Finding | None:
    """Compares the results of each replica's microbatches, and finds the first module that makes
    the difference. ``wide``: the run in 32 bits, which shows how large rounding in 16 bits is."""
    for replica, (theirs, outputs) in enumerate(zip(found, run.outputs, strict=True)):
        plain = leaves_of(outputs)
        of_wide = plain if wide is None else leaves_of(wide.outputs[replica])
        for number, leaves in enumerate(zip(theirs, plain, of_wide, strict=True)):
            apart = results_apart(leaves[0], leaves[1], exact=how.same_kernels)
            rounding = results_apart(leaves[2], leaves[1], exact=False)
            for (place, one), (_, by_rounding) in zip(apart, rounding, strict=False):
                allowed = max(how.allowed, _ROUNDINGS * by_rounding)
                if one <= allowed:
                    outcome.results.add(one, allowed)
                    continue
                what = f"result{place} of microbatch {number} of replica {replica}"
                return _of_result(what, one, allowed, sizes, run)
    return None


def _of_result(what: str, apart: float, allowed: float, sizes: Sizes, run: PlainRun) -> Finding:
    module = first_that_differs(sizes, run.watch.sizes, allowed)
    if module is None:
        cause = (
            "the step's function or what it was given: each module that both have returns the same"
        )
        return Finding(what, apart, allowed, cause)
    name = module[0] or "(root)"
    return Finding(
        f"{what}, from module {name} on (which differs by {module[1]:.2g}),", apart, allowed,
        f"another computation in module {name}: stale or other weights on its rank, a hook that "
        "does not run there, or other inputs",
    )  # fmt: skip


def compare_gradients(
    found: Gradients,
    reference: ReferenceModel,
    how: Arithmetic,
    divisors: Divisors,
    outcome: Outcome,
) -> Finding | None:
    """The gradients that the job is left with after its reductions, in the order of the model's
    parameters."""
    plain = reference.gradients
    if _overflow(found) and _overflow(plain):
        outcome.leave_out("gradients of steps that overflow, with plain PyTorch, too")
        return None
    whole = {name: plain.get(name, torch.zeros_like(found[name]))
             for name in reference.names() if name in found}  # fmt: skip
    floor = FLOOR * max(map(mean_size, plain.values()), default=0.0)
    rounding = _rounding(whole, reference.wide_gradients, floor) if how.rounds else {}
    usual = sorted(rounding.values())[len(rounding) // 2] if rounding else 0.0
    differing, tally = [], Tally()
    for name, gradient in whole.items():
        apart = difference(found[name], gradient, floor)
        allowed = max(how.allowed, _ROUNDINGS * usual, 2 * _ROUNDINGS * rounding.get(name, 0.0))
        if apart > allowed:
            differing.append((name, apart, allowed))
        else:
            tally.add(apart, allowed)
    if not differing:
        outcome.parameters = len(whole)
        outcome.gradients.add(tally.apart, tally.allowed)
        return None
    name, apart, allowed = differing[0]
    cause = cause_of_gradient(
        found[name], whole, name, reference.gradients_of_first.get(name), divisors, allowed
    )
    what = f"the gradient of parameter {names_of([name for name, *_ in differing])}"
    return Finding(what, apart, allowed, cause)


def _rounding(whole: Gradients, wide: Gradients, floor: float) -> dict[str, float]:
    """Distance of 16 bits from 32, by parameter."""
    return {name: difference(wide.get(name, torch.zeros_like(gradient)), gradient, floor)
            for name, gradient in whole.items()}  # fmt: skip


def _overflow(gradients: Gradients) -> bool:
    return any(not bool(g.isfinite().all()) for g in gradients.values() if g.is_floating_point())


def compare_update(
    before: WholeState, after: WholeState, plain: dict[int, torch.Tensor], outcome: Outcome
) -> Finding | None:
    """The weights of all parameters that the optimizer was given."""
    differing, tally = [], Tally()
    for number, expected in plain.items():
        if number not in after.values:
            continue
        found = after.values[number].reshape(expected.shape)
        allowed = allowed_after_update(before.values[number], expected)
        size = float(torch.linalg.vector_norm(expected.double())) or 1.0
        apart = float(torch.linalg.vector_norm(found.double() - expected.double()))
        if not apart <= allowed and not torch.equal(found, expected):
            differing.append((number, apart / size, allowed / size))
        else:
            tally.add(apart / size, allowed / size)
    if not differing:
        outcome.updates.add(tally.apart, tally.allowed)
        return None
    number, apart, allowed = differing[0]
    names = [before.names[n] or f"number {n} of the optimizer" for n, *_ in differing]
    cause = cause_of_update(before.values[number], after.values[number], plain[number])
    what = f"parameter {names_of(names)} after the update"
    return Finding(what, apart, allowed, cause)
