# SPDX-License-Identifier: Apache-2.0
"""Calls between the modules of a partitioned model: the Python ends of the pipeline engine."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch import codec
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPValidationError
from smdistributed.modelparallel.torch.ownership import Ownership


class RemoteModules:
    """Sends calls of modules of other partitions there, and runs those of this one for others."""

    def __init__(self) -> None:
        self._engine: _runtime.Engine | None = None
        self._ownership: Ownership | None = None

    def connect(self, engine: _runtime.Engine, ownership: Ownership) -> None:
        """From now on modules of other partitions are called where they live.

        A module is intercepted at its call, not at its class: ``super().forward()`` works, and its
        hooks run once, on its owner.
        """
        self._engine, self._ownership = engine, ownership
        for module in ownership.modules:
            module.__dict__["_orig_forward"] = module.forward
            if not ownership.owns(module):
                remote = functools.partial(self._call, module)
                module.__dict__["forward"] = remote
                module.__dict__["_compiled_call_impl"] = remote

    def _call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        assert self._engine is not None and self._ownership is not None
        ownership = self._ownership
        module_id, owner = ownership.module_id(module), ownership.of_module(module)
        name = ownership.module_names[module_id]
        if self._engine.microbatch < 0:
            raise SMPStepError(
                f"module {name} lives on partition {owner}, this is partition "
                f"{ownership.partition}: call it inside a function decorated with smp.step"
            )
        try:
            stub, tensors = codec.pack((args, kwargs), ownership.remote_name)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise SMPValidationError(
                f"an argument of module {name} cannot travel to partition {owner}: {error}"
            ) from error
        return codec.unpack(*self._engine.call(owner, module_id, stub, tensors))

    def run(
        self, module_id: int, stub: bytes, tensors: list[torch.Tensor]
    ) -> tuple[bytes, list[torch.Tensor]]:
        """Runs a module of this partition for another one. The engine calls it."""
        assert self._ownership is not None
        args, kwargs = codec.unpack(stub, tensors, self._ownership.find_parameter)
        result = self._ownership.modules[module_id](*args, **kwargs)
        try:
            return codec.pack(result)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise SMPValidationError(
                f"the result of module {self._ownership.module_names[module_id]} cannot travel "
                f"to another partition: {error}"
            ) from error
