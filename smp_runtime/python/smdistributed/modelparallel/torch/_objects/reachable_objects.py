# SPDX-License-Identifier: Apache-2.0
"""The objects that can change and are to be reached from others, as pickle walks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._objects import codec


def reachable_objects(roots: Iterable[Any]) -> list[Any]:
    """Each once, in the order of the walk, which enters neither modules nor tensors. What cannot be
    pickled ends the walk from its root.

    >>> inner = [1]
    >>> [one is inner for one in reachable_objects([(inner, {"a": inner}, nn.Linear(1, 1))])]
    [True, False]
    """
    finder = _Finder(objects=[])
    for root in roots:
        with contextlib.suppress(*codec.REFUSALS):
            finder.dump(root)
    assert finder.objects is not None
    return finder.objects


class _Finder(codec.Writer):
    def persistent_id(self, obj: Any) -> Any:
        return 0 if isinstance(obj, (nn.Module, torch.Tensor)) else super().persistent_id(obj)
