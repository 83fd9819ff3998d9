# SPDX-License-Identifier: Apache-2.0
"""Parameters that have shapes, types and a device, and neither values nor memory.

Unlike those of the meta device they can be moved, and computed with beside tensors that have
values: what comes of it has shapes only, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakTensorKeyDictionary

#: Errors of code whose shapes, or whose way, depend on values.
SHAPES_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)


class ShapesOnly:
    """The mode in which tensors have shapes only, and the parameters that it has made.

    >>> shapes = ShapesOnly()
    >>> with shapes.of_parameters():
    ...     layer = nn.Linear(10**4, 10**4)
    >>> layer.weight.shape, layer(torch.ones(2, 10**4)).shape
    (torch.Size([10000, 10000]), torch.Size([2, 10000]))
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, parameter: nn.Parameter) -> nn.Parameter:
        """The same for the same parameter: modules that share one go on to share it."""
        if isinstance(parameter, FakeTensor):
            return parameter
        if parameter not in self._made:
            with self.mode, torch.no_grad():
                empty = torch.empty_strided(
                    parameter.size(), parameter.stride(), dtype=parameter.dtype
                )
            made = nn.Parameter(empty, parameter.requires_grad)
            made.__dict__.update(parameter.__dict__)
            self._made[parameter] = made
        result: nn.Parameter = self._made[parameter]
        return result

    @contextlib.contextmanager
    def of_parameters(self) -> Iterator[None]:
        """Inside, each parameter loses its values when a module gets it."""

        def keep(_module: nn.Module, _name: str, parameter: nn.Parameter) -> nn.Parameter:
            return self.of(parameter)

        # Its signature leaves out that a hook may return another parameter.
        handle = register_module_parameter_registration_hook(keep)  # type: ignore[arg-type]
        plain, truncated = nn.Module._apply, nn.init._no_grad_trunc_normal_
        converted: dict[nn.Parameter, nn.Parameter] = {}

        def apply(module: nn.Module, function: Callable[..., Any], recurse: bool = True) -> Any:
            for child in module.children() if recurse else ():
                child._apply(function)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = _converted(parameter, function, converted)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = function(buffer)
            return module

        def drawn(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            """It draws until all values are within bounds, which nothing without values is."""
            return tensor if isinstance(tensor, FakeTensor) else truncated(tensor, *args, **kwargs)

        nn.init._no_grad_trunc_normal_ = drawn
        # Torch's own exchanges the insides of tensors, which these do not let it do.
        nn.Module._apply = apply  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module._apply = plain  # type: ignore[method-assign]
            nn.init._no_grad_trunc_normal_ = truncated
            handle.remove()


def _converted(
    parameter: nn.Parameter,
    function: Callable[..., Any],
    converted: dict[nn.Parameter, nn.Parameter],
) -> nn.Parameter:
    """As a module's ``to`` converts it: the same for the modules that share it."""
    if parameter in converted:
        return converted[parameter]
    with torch.no_grad():
        made = function(parameter)
    if (made.dtype, made.device) == (parameter.dtype, parameter.device):
        return parameter
    converted[parameter] = nn.Parameter(made, parameter.requires_grad)
    return converted[parameter]
