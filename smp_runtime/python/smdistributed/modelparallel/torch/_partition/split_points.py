# SPDX-License-Identifier: Apache-2.0
"""``smp.partition``: where a script wants modules, or where a model is best cut."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, overload

from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations import partition_annotations
from smdistributed.modelparallel.torch._partition.module_trees import module_tree
from smdistributed.modelparallel.torch._partition.parameter_readers import joined_modules
from smdistributed.modelparallel.torch._partition.tracing import trace_step
from smdistributed.modelparallel.torch.exceptions import SMPValidationError


@overload
def partition(index: int, /) -> AbstractContextManager[None]: ...
@overload
def partition(model: nn.Module, example: Any, stages: int) -> list[str]: ...
def partition(model: Any, example: Any = None, stages: int | None = None) -> Any:
    """With a number: puts modules that are created inside on that partition; the innermost context
    has precedence. Ignored when ``auto_partition`` is true. Raises SMPPartitionError for a
    partition that the job does not have.

    With a model: the names of its modules with which ``stages`` stages but the first begin, for
    pipelines other than this library's, such as ``torch.distributed.pipelining``. No job is needed.
    The model runs forward once on ``example``: its only argument, a tuple of all, or a dict by
    name; parameters, buffers and random generators are as before afterwards. Of all cuts whose
    heaviest stage has at most 5 % more operations than the least that is possible, those that the
    fewest bytes cross. Raises SMPConfigError for more stages than the model has modules to place.

    >>> import torch
    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"auto_partition": False, "default_partition": 0})
    >>> with smp.partition(0):
    ...     layer = nn.Linear(2, 2)
    >>> smp.shutdown()
    >>> smp.partition(nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))), torch.ones(1, 8), 2)
    ['2']
    """
    if not isinstance(model, nn.Module):
        if example is not None or stages is not None:
            raise SMPValidationError(
                f"smp.partition got {type(model).__name__} and an example; expected a "
                "torch.nn.Module, an example of its arguments and a number of stages, or the "
                "number of a partition alone"
            )
        return partition_annotations.partition(model)
    if not isinstance(stages, int) or isinstance(stages, bool):
        raise SMPValidationError(
            f"smp.partition got {stages!r} for the number of stages; expected an integer"
        )
    named = isinstance(example, dict)
    plain = () if named else example if isinstance(example, tuple) else (example,)
    trace = trace_step(model, lambda: model(*plain, **(example if named else {})))
    joined = joined_modules(model, trace.reads)
    return _runtime.split_points(module_tree(model, trace, lambda _: None, (), joined), stages)
