# SPDX-License-Identifier: Apache-2.0
"""``torch.sagemaker.state``: settings, ranks and process groups of this process."""

from __future__ import annotations

import gc
import json
import os
import weakref
from typing import Any, cast

import torch.distributed as dist
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPNotInitializedError
from smdistributed.sagemaker import _session
from smdistributed.sagemaker._ranker import Ranker
from smdistributed.sagemaker._settings import NOTHING, STATE, Origin, of_estimator, of_state
from smdistributed.sagemaker.random_states import RngStateTracker, tracker_for


class _Setting:
    """A key of ``init``. Before ``init`` it is what the job says, and a script may write it; what
    it writes goes before all else then."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, state: State | None, _owner: type) -> Any:
        return self if state is None else getattr(state.config, self._name)

    def __set__(self, state: State, value: int | bool) -> None:
        written = {**state.written, self._name: value}
        after = getattr(state.merged(written=written), self._name)
        before = getattr(state.config, self._name)
        if state.is_initialized and after != before:
            raise SMPConfigError(
                f"{STATE}.{self._name} = {after} comes after torch.sagemaker.init(), "
                f"which made groups for {before}; write it before"
            )
        state.written = written


class State:
    """The settings can be read and written before ``torch.sagemaker.init``; the groups are made
    by it.

    >>> State().tp_size
    1
    """

    hybrid_shard_degree = _Setting()
    sm_activation_offloading = _Setting()
    activation_loading_horizon = _Setting()
    fsdp_cache_flush_warnings = _Setting()
    allow_empty_shards = _Setting()
    tensor_parallel_degree = _Setting()
    context_parallel_degree = _Setting()
    expert_parallel_degree = _Setting()
    random_seed = _Setting()

    compares_batches: bool
    """True where the first batches of the ranks of a tensor-parallel group are compared."""
    written: dict[str, int | bool]
    native_shard_degree: int | None
    """Ranks over which the script's own strategy shards, where no key says it; seen when FSDP wraps
    the model."""
    shard_process_group: dist.ProcessGroup | None
    replica_process_group: dist.ProcessGroup | None
    rep_rank_process_group: dist.ProcessGroup | None
    tp_process_group: dist.ProcessGroup | None
    cp_process_group: dist.ProcessGroup | None
    world_process_group: dist.ProcessGroup | None
    _config: _runtime.V2Config | None
    _rng_state_tracker: RngStateTracker | None
    _early_models: weakref.WeakSet[nn.Module]

    def __init__(self) -> None:
        self.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in State.__annotations__ and not hasattr(State, name):
            self.merged(written={name: value})  # raises, with the nearest key
        super().__setattr__(name, value)

    def reset(self) -> None:
        """Forgets settings and groups, as before ``init``; the groups themselves are not ended, but
        what split models communicate by is: they are of no use any more."""
        _session.end()
        self.compares_batches = True
        self._rng_state_tracker = None
        self._early_models = weakref.WeakSet()
        self.written = {}
        self._config = None
        self.native_shard_degree = None
        self.shard_process_group = None
        self.replica_process_group = None
        self.rep_rank_process_group = None
        self.tp_process_group = None
        self.cp_process_group = None
        self.world_process_group = None

    def note_early(self, model: nn.Module) -> None:
        """Takes a model that FSDP wraps before ``init``. Raises SMPNotInitializedError where there
        are settings, which would not reach it."""
        values = self.settings
        defaults = json.loads(_runtime.make_v2_config([]).as_json())
        if asked := [f"{name}={values[name]}" for name in values if values[name] != defaults[name]]:
            raise SMPNotInitializedError(
                "FullyShardedDataParallel was called before torch.sagemaker.init(), so that "
                f"{', '.join(asked)} would have no effect; call init first"
            )
        self._early_models.add(model)

    def refuse_early(self) -> None:
        """Raises SMPConfigError where FSDP has wrapped a model, which is still there."""
        if self._early_models:
            gc.collect()  # models are in circles
        if self._early_models:
            raise SMPConfigError(
                "torch.sagemaker.init() comes after FullyShardedDataParallel(...), which has "
                "wrapped a model without the settings and groups of init; call init before"
            )

    @property
    def config(self) -> _runtime.V2Config:
        """Settings in effect: those of ``init``, and before what the job and this state say."""
        return self._config or self.merged()

    @config.setter
    def config(self, config: _runtime.V2Config) -> None:
        self._config = config

    @property
    def settings(self) -> dict[str, int | bool]:
        """The value of each key."""
        values: dict[str, int | bool] = json.loads(self.config.as_json())
        return values

    def merged(
        self, given: Origin = NOTHING, written: dict[str, int | bool] | None = None
    ) -> _runtime.V2Config:
        """Settings from defaults, ``given`` by the script, the job and what is ``written`` to this
        state, of which each goes before the one that it follows. Raises SMPConfigError."""
        written = self.written if written is None else written
        return _runtime.make_v2_config([of_state(written), of_estimator(), given])

    @property
    def is_initialized(self) -> bool:
        return self._config is not None

    @property
    def rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))

    @property
    def world_size(self) -> int:
        if dist.is_initialized():
            return dist.get_world_size()
        return int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def tp_size(self) -> int:
        return cast(int, self.tensor_parallel_degree)

    @property
    def tp_rank(self) -> int:
        return self.rank % self.tp_size

    @property
    def cp_size(self) -> int:
        return cast(int, self.context_parallel_degree)

    @property
    def cp_rank(self) -> int:
        return self.rank // self.tp_size % self.cp_size

    @property
    def ep_size(self) -> int:
        return cast(int, self.expert_parallel_degree)

    @property
    def ep_rank(self) -> int:
        return self.rank % self.ep_size

    @property
    def set_shard_degree(self) -> int | None:
        """Ranks over which FSDP is to shard; None where the script's strategy says it."""
        return self.config.shard_degree(self.world_size)

    @property
    def ranker(self) -> Ranker:
        """Arithmetic of ranks. Where the script's strategy says how FSDP shards, it is known once
        FSDP wraps the model; before, it is as if over all ranks. So it is without sharding, too:
        FSDP spreads the state dicts of such a model over all ranks, which save together then."""
        degree = self.set_shard_degree or self.native_shard_degree or 1
        all_ranks = self.world_size // self.tp_size
        return Ranker(self.world_size, degree if degree > 1 else all_ranks, self.tp_size)

    def get_rng_state_tracker(self) -> RngStateTracker:
        """States of random numbers that are apart from torch's own: inside its ``fork()`` each
        tensor rank draws numbers of its own, from ``random_seed`` plus the rank."""
        if self._rng_state_tracker is None:
            self._rng_state_tracker = tracker_for(cast(int, self.random_seed), self.tp_rank)
        return self._rng_state_tracker


state = State()
