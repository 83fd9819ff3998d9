# SPDX-License-Identifier: Apache-2.0
"""Runs a model on the GPU that does not fit there: each module is there only while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


@contextlib.contextmanager
def on_gpu(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Within, calls of ``model`` compute on the current CUDA device, if ``wanted``.

    A module's own parameters and buffers move there when it is entered and back when it is left;
    what the outermost call returns comes back to the CPU, where the script expects it. A model that
    is on a GPU already stays as it is.
    """
    first = next(model.parameters(), None)
    if not wanted or first is None or first.is_cuda:
        yield
        return
    swap = _Swap(torch.device("cuda", torch.cuda.current_device()))
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(swap.enter, with_kwargs=True, prepend=True))
        handles.append(module.register_forward_hook(swap.leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        swap.put_all_back()


class _Swap:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._depth = 0
        self._users: dict[nn.Module, int] = {}
        self._home: dict[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        self._users[module] = self._users.get(module, 0) + 1
        if self._users[module] == 1:
            own = [*module._parameters.values(), *module._buffers.values()]
            # An outer module has already moved the tensors that it shares with this one.
            self._home[module] = [(t, t.data) for t in own if t is not None and not t.is_cuda]
            for tensor, data in self._home[module]:
                tensor.data = data.to(self._device)
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), (args, kwargs))

    def leave(self, module: nn.Module, _args: Any, output: Any) -> Any:
        self._depth -= 1
        self._users[module] -= 1
        if self._users[module] == 0:
            self._put_back(module)
        if self._depth > 0:
            return output
        return tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), output)

    def _put_back(self, module: nn.Module) -> None:
        for tensor, data in self._home.pop(module, []):
            tensor.data = data

    def put_all_back(self) -> None:
        for module in list(self._home):
            self._put_back(module)
