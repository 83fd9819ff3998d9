# SPDX-License-Identifier: Apache-2.0
"""The session under layers that are split: one of the library of SMP v1, whose layers they are."""

from __future__ import annotations

from smdistributed.modelparallel.torch import job
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

_is_ours = False
_SEEDS = 1 << 20  # which streams of random numbers have room for


def begin(degree: int, seed: int) -> None:
    """Joins the ranks, unless that is done. Collective over all ranks of the job.

    Raises SMPConfigError where the script has begun a session of its own.
    """
    global _is_ours  # noqa: PLW0603 - of this process
    if job.is_initialized():
        if _is_ours:
            return
        raise SMPConfigError(
            "smdistributed.modelparallel.torch is initialised, and torch.sagemaker.transform makes "
            "layers of a session of its own: use one of the two libraries in a script"
        )
    job.init_beneath(
        {
            "tensor_parallel_degree": degree,
            "ddp": True,
            "optimize": "speed",
            "prescaled_batch": True,
            "tensor_parallel_seed": seed % _SEEDS,
        }
    )
    _is_ours = True


def end() -> None:
    """Leaves the session that ``begin`` began; so does the end of the process."""
    global _is_ours  # noqa: PLW0603 - of this process
    if _is_ours:
        _is_ours = False
        job.shutdown()
