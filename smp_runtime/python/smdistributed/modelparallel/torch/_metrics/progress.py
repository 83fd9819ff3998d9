# SPDX-License-Identifier: Apache-2.0
"""``smp.progress``: how many steps the live line counts."""

from __future__ import annotations

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state


def progress(total: int) -> None:
    """Tells the live line how many training steps this run of the script makes: it shows
    ``step 12 of 400`` and the time left. Not in the published library. No communication; any rank
    may call it, at any time after ``smp.init``, and again if the number changes.

    Args:
        total: calls of functions decorated with ``smp.step``, without those that only evaluate.
            Where gradients accumulate each call counts; a job that resumes counts from there on.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: ``total`` is no whole number above 0.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.progress(400)
    >>> smp.shutdown()
    """
    state.require_initialized("smp.progress")
    if isinstance(total, bool) or not isinstance(total, int) or total < 1:
        raise SMPValidationError(
            f"smp.progress got {total!r}; expected how many steps the script makes, at least 1"
        )
    state.reports.set_total(total)
