# SPDX-License-Identifier: Apache-2.0
"""Attributes of an optimizer over masters by the names of the published library."""

from __future__ import annotations

from typing import Any

import torch

from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch.state_mod import state


class OldNames:
    """Attributes of a distributed optimizer under their old names."""

    @property
    def masters(self) -> MasterParameters | None:
        """Masters of the optimizer; None where the model's parameters are stepped."""
        raise NotImplementedError

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True) -> None:
        """``model.backward(loss)``, under the name that old scripts use."""
        assert state.model is not None
        state.model.backward(loss)

    def require_masters(self, name: str) -> MasterParameters:
        """Raises AttributeError where there are none."""
        if self.masters is None:
            raise AttributeError(f"the optimizer has no {name}: no state is sharded or 16-bit")
        return self.masters

    def reload_model_params(self) -> None:
        """Takes over what a script wrote into the model's parameters, for instance of a checkpoint
        without optimizer state. Collective where state is sharded.

        Masters whose parameters still are what they were rounded to keep their 32 bits. Without
        effect where no masters are, or where parameters are gathered for use: a state dict goes to
        the masters itself.
        """
        sharded = None if state.model is None else state.model.sharded
        if self.masters is None or sharded is None or sharded.plan.on_demand:
            return
        held = dict(zip(sharded.names, sharded.parameters, strict=True))
        sharded.store.accept_writes()
        sharded.assign(
            {
                name: held[name].detach()
                for name, master in sharded.whole_values()
                if not torch.equal(master.to(held[name].dtype), held[name].detach().cpu())
            }
        )

    def init_master_params(self) -> None:
        """``reload_model_params``, under the name for its first call: the masters are there."""
        self.reload_model_params()

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """The masters of this rank, one flat tensor for each group of the optimizer."""
        return self.require_masters("fp32_partitioned_groups_flat").core.flat_groups()

    @property
    def fp16_groups(self) -> list[list[torch.Tensor]]:
        """The model's parameters by group of the optimizer."""
        return self.require_masters("fp16_groups").original_groups

    @property
    def ds_param_shard_group(self) -> Any:
        """The c10d group over which parameters are sharded."""
        self.require_masters("ds_param_shard_group")
        assert state.model is not None and state.model.sharded is not None
        return state.model.sharded.groups.shards
