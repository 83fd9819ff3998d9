# SPDX-License-Identifier: Apache-2.0
"""The wrapped model while its step is computed in plain PyTorch.

Step functions have the model as an argument, or from outside; so the object stays and answers
otherwise, by another class for as long as that takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import holding

Backward = Callable[[Any, Any], None]


@contextlib.contextmanager
def calling_plain(
    model: Model, plain: nn.Module, backward: Backward, types: list[torch.dtype], *, autocast: bool
) -> Iterator[None]:
    """Inside, calls of ``model`` are those of ``plain``, which has the same wrappers inside, and
    ``model.backward(tensors, grad_tensors)`` is ``backward``. ``types`` gets those of autocast,
    which a GPU's is on the CPU, too; without ``autocast`` there is none."""
    own: Any = type(model)

    class PlainModel(own):  # type: ignore[misc]
        @property
        def module(self) -> nn.Module:
            return plain

        @property
        def partitioned(self) -> bool:
            return False  # activation checkpointing looks here: nothing is anywhere else

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    types.append(torch.get_autocast_dtype(device))
                    with torch.autocast("cpu", types[-1], enabled=autocast):
                        return plain(*args, **kwargs)
            return plain(*args, **kwargs)

        forward = __call__

        def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
            backward(tensors, grad_tensors)

    with holding(model, __class__=PlainModel), _OnlyHere():  # type: ignore[no-untyped-call]
        yield


class NotPlainError(RuntimeError):
    """A step function does what has no counterpart in one process."""


def refuse_others(roots: Sequence[torch.Tensor], names: Mapping[int, str]) -> None:
    """Raises NotPlainError if ``roots`` were computed with parameters of the job itself, whose
    ``names`` by identity these are: a function has them by another way than its argument."""
    seen = {root.grad_fn for root in roots}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        name = names.get(id(getattr(node, "variable", None)))  # if the node is that of a leaf
        if name is not None:
            raise NotPlainError(
                f"its function uses parameter {name} of the module that was wrapped, and not of "
                "the model that it is given"
            )
        found = {after for after, _ in node.next_functions} - seen
        seen |= found
        waiting += found


class _OnlyHere(TorchDispatchMode):
    """Raises NotPlainError for collectives of torch.distributed."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            raise NotPlainError(
                f"its function calls {func._schema.name.strip('_')} of torch.distributed, for "
                "which the other ranks would have to compute it, too"
            )
        return func(*args, **(kwargs or {}))
