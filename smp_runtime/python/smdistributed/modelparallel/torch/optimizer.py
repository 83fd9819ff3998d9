# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a partitioned model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from smdistributed.modelparallel.torch import comm, ranks
from smdistributed.modelparallel.torch.exceptions import (
    SMPCheckpointError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.saved_parts import PARTIAL_KEY
from smdistributed.modelparallel.torch.state_mod import state

#: In a checkpoint's file: the parameters' names, by their numbers in the optimizer.
NAMES_KEY = "_smp_parameter_names"


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps ``optimizer``, made from all parameters of the model on every rank.

    Each rank steps the parameters that live there: those of other partitions never have a
    gradient. A rank that owns no parameter steps nothing.

    Args:
        optimizer: any ``torch.optim.Optimizer``; also reachable as ``.optimizer``.
        static_loss_scale, dynamic_loss_scale, dynamic_loss_args: ignored without ``fp16``.
    """

    #: GradScaler then finds overflows itself, on all partitions, also for torch's fused optimizers.
    _step_supports_amp_scaling = False

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        **dynamic_loss_args: Any,
    ) -> None:
        state.require_initialized("smp.DistributedOptimizer")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SMPValidationError(
                f"smp.DistributedOptimizer got {type(optimizer).__name__}; it wraps a "
                "torch.optim.Optimizer"
            )
        # Not super().__init__: state and hooks are the wrapped optimizer's, see __getattr__.
        self.optimizer = optimizer
        state.optimizer = self

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, or being unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self.optimizer.defaults = value

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped for an overflow: never without ``fp16``."""
        return False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True, **old_names: bool) -> None:
        """As PyTorch's; old scripts say ``set_grads_to_None``."""
        clear = old_names.pop("set_grads_to_None", set_to_none)
        if old_names:
            raise TypeError(f"zero_grad() got unexpected arguments {sorted(old_names)}")
        self.optimizer.zero_grad(set_to_none=clear)

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> NoReturn:
        raise SMPUnsupportedError(
            "clip_master_grads clips the master gradients of fp16 training, which is not "
            "available yet"
        )

    # --- State dicts ---

    def orig_state_dict(self) -> dict[str, Any]:
        """What the wrapped optimizer says of this rank."""
        return self.optimizer.state_dict()

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this partition's parameters, and the key ``_smp_is_partial``."""
        return {**self._only_local(self.optimizer.state_dict()), PARTIAL_KEY: True}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters. Collective over the pipeline group."""
        own = self.optimizer.state_dict()
        if ranks.pp_size() == 1:
            return own
        return _merged(comm.allgather(self._only_local(own), comm.CommGroup.PP_GROUP))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a full or partial state dict.

        Partial ones of another partition of the model are gathered first, over the pipeline group.
        """
        given = {k: v for k, v in state_dict.items() if k not in (PARTIAL_KEY, NAMES_KEY)}
        if state_dict.get(PARTIAL_KEY, False) and ranks.pp_size() > 1:
            given = _merged(comm.allgather(given, comm.CommGroup.PP_GROUP))
        self.optimizer.load_state_dict(self._only_local(given))

    def part_for_checkpoint(self) -> dict[str, Any]:
        """``local_state_dict`` and the names of the parameters, so that they are found again."""
        return {**self.local_state_dict(), NAMES_KEY: self._parameter_names()}

    def load_parts(self, parts: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Loads what all partitions of a checkpoint saved, whatever their number.

        Raises SMPCheckpointError if they are of an optimizer over other parameters.
        """
        saved = _merged(parts)
        names, own = list(saved.pop(NAMES_KEY, self._parameter_names())), self._parameter_names()
        sizes = [[len(group["params"]) for group in groups] for groups in
                 (saved["param_groups"], self.param_groups)]  # fmt: skip
        if names != own or sizes[0] != sizes[1]:
            place = next((i for i, (a, b) in enumerate(zip(names, own, strict=False)) if a != b), 0)
            raise SMPCheckpointError(
                f"the optimizer state in {folder} is of other parameters: {len(names)} in groups "
                f"of {sizes[0]}, here {len(own)} in groups of {sizes[1]}; number {place} is "
                f"{names[place] if place < len(names) else 'absent'} there and "
                f"{own[place] if place < len(own) else 'absent'} here"
            )
        saved.pop(PARTIAL_KEY, None)
        self.optimizer.load_state_dict(self._only_local(saved))

    def settle(self) -> None:
        """Drops the state of parameters that the partition put elsewhere."""
        kept = self._only_local(self.optimizer.state_dict())["state"]
        for index, parameter in enumerate(self._parameters()):
            if index not in kept:
                self.optimizer.state.pop(parameter, None)

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _parameter_names(self) -> list[str]:
        named: dict[torch.Tensor, str] = {}
        if state.model is not None:
            named = {parameter: name for name, parameter in state.model.named_parameters()}
        return [named.get(parameter, "") for parameter in self._parameters()]

    def _only_local(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Without the state of other partitions' parameters, which this rank never steps.

        It is there if an optimizer makes its state at once, or was loaded before the partition.
        """
        if state.model is None or not state.model.partitioned:
            return dict(state_dict)
        local = set(state.model.local_parameters())
        numbers = {index for index, p in enumerate(self._parameters()) if p in local}
        kept = {index: value for index, value in state_dict["state"].items() if index in numbers}
        return {**state_dict, "state": kept}


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    parts = list(parts)
    merged = {**parts[0], "state": {}}
    for part in parts:
        merged["state"].update(part["state"])
    return merged
