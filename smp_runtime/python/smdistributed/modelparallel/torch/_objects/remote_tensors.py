# SPDX-License-Identifier: Apache-2.0
"""Results of remote modules that go straight to the next one: what their caller holds meanwhile.

See ``smp_runtime/pipeline/direct_exchange.h``, which decides for which results it is worth while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from smdistributed.modelparallel.torch.exceptions import SMPStepError

#: Properties that a tensor's type and shape answer. Everything else looks at its data; hooks and
#: ``retain_grad`` do so that its gradient comes here as well.
_PROPERTIES = (
    "shape dtype device layout ndim is_cuda is_cpu is_meta is_sparse is_nested is_quantized "
    "requires_grad is_leaf grad_fn _version"
)
_METHODS = (
    "__hash__ __len__ dim ndimension element_size get_device is_complex is_contiguous "
    "is_floating_point nelement numel size storage_offset stride"
)
_ANSWERED_WITHOUT_DATA = {
    *(getattr(torch.Tensor, name).__get__ for name in _PROPERTIES.split()),
    *(getattr(torch.Tensor, name) for name in _METHODS.split()),
    *(torch.is_complex, torch.is_floating_point, torch.numel),
}


class RemoteTensor(torch.Tensor):
    """A tensor whose data are on another rank, and come here when somebody looks at them.

    Everything that is done with it is done with :meth:`data_here`, so results are plain tensors.
    Looking waits for the rank that has the data; at the end of the function that made the call they
    are fetched for whoever still holds it.
    """

    _fetch: Callable[[torch.Tensor], torch.Tensor]
    _here: torch.Tensor | None

    @staticmethod
    def __new__(
        cls,
        fetch: Callable[[torch.Tensor], torch.Tensor],
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> RemoteTensor:
        made: RemoteTensor = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=device
        )
        made._fetch, made._here = fetch, None
        return made

    def data_here(self) -> torch.Tensor:
        """The data as a tensor with this one's gradient: the same one at each look, so that what
        changes it in place is seen by all who look."""
        if self._here is not None:
            return self._here if torch.is_grad_enabled() else self._here.detach()
        here = self._fetch(self)
        if here is self:
            raise SMPStepError(
                "the result of a module of another partition was looked at after smp.shutdown(), "
                "and its data are gone"
            )
        if torch.is_grad_enabled():
            self._here = here
        return here

    def become(self, value: torch.Tensor) -> None:
        """A module of another partition has changed the data in place, to ``value``."""
        self._here = value

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _ANSWERED_WITHOUT_DATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(latest, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # C++ below autograd, such as the sum of two gradients.
        args, kwargs = tree_map(_data_of, (args, kwargs or {}))
        return func(*args, **kwargs)


@dataclass(frozen=True)
class Description:
    """Properties of a tensor that is on another rank."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool


def description_of(tensor: torch.Tensor) -> Description:
    return Description(tuple(tensor.shape), tensor.dtype, tensor.device.type, tensor.requires_grad)


def remote_tensor(description: Description, refusal: str) -> RemoteTensor:
    """A tensor whose data cannot be had here: looking at them raises SMPStepError, ``refusal``."""

    def refuse(_tensor: torch.Tensor) -> torch.Tensor:
        raise SMPStepError(refusal)

    device = torch.device(description.device)
    made = RemoteTensor(refuse, description.shape, description.dtype, device)
    with torch._C.DisableTorchFunctionSubclass():
        made.requires_grad_(description.requires_grad)
    return made


def latest(value: Any) -> Any:
    """The data of a remote tensor; anything else as it is."""
    return value.data_here() if isinstance(value, RemoteTensor) else value


def seen(value: Any) -> Any:
    """The data of a remote tensor that somebody has looked at, and may have changed; anything else,
    and a remote tensor that is one yet, as it is."""
    return value._here if isinstance(value, RemoteTensor) and value._here is not None else value


def _data_of(value: Any) -> Any:
    if not isinstance(value, RemoteTensor):
        return value
    with torch.no_grad():
        return value.data_here()
