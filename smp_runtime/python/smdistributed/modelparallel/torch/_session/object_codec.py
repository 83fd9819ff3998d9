# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes. CUDA tensors travel over the CPU and arrive on the receiver's device."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from smdistributed.modelparallel.torch.exceptions import SMPValidationError


def _on_current_device(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    # The sender's device number means nothing here, and touching it would cost its memory.
    if torch.cuda.is_available():
        tensor = tensor.to(torch.device("cuda", torch.cuda.current_device()))
    return tensor.requires_grad_(requires_grad)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.is_cuda:
            return _on_current_device, (obj.detach().cpu(), obj.requires_grad)
        return NotImplemented


def encode(obj: Any) -> bytes:
    """Raises SMPValidationError for an object that pickle refuses.

    >>> decode(encode({"a": [1, None]}))
    {'a': [1, None]}
    """
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(obj)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise SMPValidationError(
            f"an object of type {type(obj).__name__} cannot travel to another rank: {error}"
        ) from error
    return file.getvalue()


def decode(data: bytes) -> Any:
    """Only for bytes of a rank of the same job: unpickling runs code."""
    return pickle.loads(data)
