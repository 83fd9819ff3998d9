# SPDX-License-Identifier: Apache-2.0
"""Comparison of what the ranks of a tensor-parallel group are fed: with other batches each would
compute a part of another sample, without a word."""

from __future__ import annotations

from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._checks.input_check import difference, input_tensors
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.sagemaker.state_handler import state


class BatchCheck:
    """Hook before forwards of a split model, which looks at the first one."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises SMPValidationError on all ranks of a group that are not fed the same. Collective
        over it."""
        if self._done or not state.compares_batches:
            return
        self._done = True
        arguments = {**{str(place): one for place, one in enumerate(args)}, **kwargs}
        own = input_tensors(arguments, with_digests=True)
        reports = comm.allgather(own, comm.CommGroup.TP_GROUP)
        found = difference(reports, ranks.get_tp_group())
        if found is not None:
            raise SMPValidationError(
                f"{found}; the ranks of a tensor-parallel group compute one batch together: give "
                "a sampler the rank and the number of ranks divided by tensor_parallel_degree, "
                f"{state.tp_size}, or set torch.sagemaker.state.compares_batches = False"
            )
