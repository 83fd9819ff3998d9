# SPDX-License-Identifier: Apache-2.0
"""The partition that a script wants a module on, and how modules are annotated as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPPartitionError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_ATTRIBUTE = "_smp_partition"
_open: list[tuple[str, Any]] = []  # marks of the contexts around, innermost last
_plain_init: Callable[..., None] = nn.Module.__init__


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules created inside go to partition ``index``; the innermost context has precedence.

    Ignored when ``auto_partition`` is true. Raises SMPPartitionError for a partition that the job
    does not have.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"auto_partition": False, "default_partition": 0})
    >>> with smp.partition(0):
    ...     layer = nn.Linear(2, 2)
    >>> partition_of(layer), partition_of(nn.Linear(2, 2))
    (0, None)
    >>> smp.shutdown()
    """
    _check("smp.partition", index)
    with annotating(_ATTRIBUTE, index):
        yield


def set_partition(module: nn.Module, index: int) -> None:
    """Puts ``module``, and what is below it without a setting of its own, on partition ``index``.

    To be called before the first step. Ignored when ``auto_partition`` is true.

    Raises:
        SMPPartitionError: a partition that the job does not have, or a model that is partitioned.
        SMPValidationError: something other than a module.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> layer = nn.Linear(2, 2)
    >>> smp.set_partition(layer, 0)
    >>> partition_of(layer)
    0
    >>> smp.shutdown()
    """
    _check("smp.set_partition", index)
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"smp.set_partition got {type(module).__name__}; expected a torch.nn.Module"
        )
    if ranks.pp_size() > 1 and state.model is not None and state.model.partitioned:
        raise SMPPartitionError(
            "smp.set_partition came too late: the model is partitioned; call it before the first "
            "step"
        )
    module.__dict__[_ATTRIBUTE] = index


def partition_of(module: nn.Module) -> int | None:
    """The partition asked for ``module`` itself, or None."""
    return module.__dict__.get(_ATTRIBUTE)


@contextmanager
def annotating(attribute: str, value: Any) -> Iterator[None]:
    """Modules created inside have ``value`` under ``attribute``; the innermost context wins."""
    # Patched while a context is open only, so that other code meets torch as it is.
    if not _open:
        nn.Module.__init__ = _marking_init  # type: ignore[method-assign]
    _open.append((attribute, value))
    try:
        yield
    finally:
        _open.pop()
        if not _open:
            nn.Module.__init__ = _plain_init  # type: ignore[method-assign]


def _marking_init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
    _plain_init(self, *args, **kwargs)
    self.__dict__.update(_open)


def _check(what: str, index: int) -> None:
    state.require_initialized(what)
    partitions = ranks.pp_size()
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < partitions:
        raise SMPPartitionError(
            f"{what} got partition {index!r}; expected 0 to {partitions - 1}, since partitions is "
            f"{partitions}"
        )
