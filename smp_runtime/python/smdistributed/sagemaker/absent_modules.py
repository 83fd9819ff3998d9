# SPDX-License-Identifier: Apache-2.0
"""Modules that scripts name and that are not there."""

from __future__ import annotations

from typing import Any

from torch import nn


class AbsentModule(nn.Module):
    """A class to compare types with, of which nothing can be made.

    >>> AbsentModule()
    Traceback (most recent call last):
    NotImplementedError: torch.sagemaker's AbsentModule is not there
    """

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(f"torch.sagemaker's {type(self).__name__} is not there")
