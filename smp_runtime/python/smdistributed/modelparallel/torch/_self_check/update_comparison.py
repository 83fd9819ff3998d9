# SPDX-License-Identifier: Apache-2.0
"""One update of an optimizer beside the same in plain PyTorch, on the first rank."""

from __future__ import annotations

import torch

from smdistributed.modelparallel.torch._self_check.findings import (
    Finding,
    cause_of_update,
    names_of,
)
from smdistributed.modelparallel.torch._self_check.outcome import Outcome, Tally
from smdistributed.modelparallel.torch._self_check.tolerances import allowed_after_update
from smdistributed.modelparallel.torch._self_check.whole_states import WholeState


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
