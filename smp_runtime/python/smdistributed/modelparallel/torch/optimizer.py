# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a partitioned model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import torch

from smdistributed.modelparallel.torch import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.model import PARTIAL_KEY
from smdistributed.modelparallel.torch.state_mod import state


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps ``optimizer``, made from all parameters of the model on every rank.

    Each rank steps the parameters that live there: those of other partitions never have a
    gradient. A rank that owns no parameter steps nothing.

    Args:
        optimizer: any ``torch.optim.Optimizer``; also reachable as ``.optimizer``.
        static_loss_scale, dynamic_loss_scale, dynamic_loss_args: ignored without ``fp16``.
    """

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
        given = {key: value for key, value in state_dict.items() if key != PARTIAL_KEY}
        if state_dict.get(PARTIAL_KEY, False) and ranks.pp_size() > 1:
            given = _merged(comm.allgather(given, comm.CommGroup.PP_GROUP))
        self.optimizer.load_state_dict(self._only_local(given))

    def _only_local(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Without the state of other partitions' parameters, which this rank never steps.

        It is there if an optimizer makes its state at once, or was loaded before the partition.
        """
        if state.model is None or not state.model.partitioned:
            return dict(state_dict)
        local = set(state.model.local_parameters())
        parameters = (p for group in self.param_groups for p in group["params"])
        numbers = {index for index, parameter in enumerate(parameters) if parameter in local}
        kept = {index: value for index, value in state_dict["state"].items() if index in numbers}
        return {**state_dict, "state": kept}


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    parts = list(parts)
    merged = {**parts[0], "state": {}}
    for part in parts:
        merged["state"].update(part["state"])
    return merged
