# SPDX-License-Identifier: Apache-2.0
"""``smp.memory_summary``: what the state of the model takes on this rank."""

from __future__ import annotations

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch.state_mod import state


def memory_summary() -> dict[str, int]:
    """Bytes on this rank, by what they are for. No communication; any rank may call it.

    Returns:
        ``parameters``: of modules, or their shards with masters; ``persistent``: those that are
        whole on all ranks, beside their masters; ``live`` and ``peak_live``: gathered now, and at
        most so far; ``gradients``; ``optimizer``: its state; ``activations``: what the forwards of
        the last step had in memory, without gathered parameters, when its first backward began;
        ``offloaded``: activations now in slow memory (``offload_activations``); ``snapshots``:
        copies of the state in the host's memory, for saves that do not block.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> model = smp.DistributedModel(torch.nn.Linear(3, 1))
    >>> smp.memory_summary()["parameters"]
    16
    >>> smp.shutdown()
    """
    state.require_initialized("smp.memory_summary")
    used = dict.fromkeys(
        (
            *("parameters", "persistent", "live", "peak_live", "gradients", "optimizer"),
            *("activations", "offloaded", "snapshots"),
        ),
        0,
    )
    model = state.model
    if model is not None and model.sharded is not None:
        stored = model.sharded.store.use()
        used["parameters"] = stored["shards"]
        for name in ("persistent", "live", "peak_live", "gradients"):
            used[name] = stored[name]
    elif model is not None and model.partitioned:
        local = list(model.local_parameters())
        used["parameters"] = sum(parameter.nbytes for parameter in local)
        used["gradients"] = sum(p.grad.nbytes for p in local if p.grad is not None)
    used["optimizer"] = sum(
        value.nbytes
        for optimizer in state.optimizers
        for held in optimizer.state.values()
        for value in held.values()
        if isinstance(value, torch.Tensor)
    )
    if model is not None and model.partitioned:
        used["activations"] = state.require_engine().activation_bytes
    if state.activation_store is not None:
        used["offloaded"] = state.activation_store.stats().slow_bytes
    if state.background_saves is not None:
        used["snapshots"] = state.background_saves.memory_bytes
    return used


def state_by_formula() -> int:
    """Bytes that the model's state takes here by arithmetic, with Adam: 16 bytes a parameter, for
    its value, its gradient and two moments, over the ranks that share them (ZeRO,
    arXiv:1910.02054). In 16 bits values and gradients take half, and a master the other half. 0: no
    formula, as with shard_optimizer_state alone, or no model yet."""
    model = state.model
    if model is None or not model.partitioned:
        return 0
    if model.sharded is not None:
        return model.sharded.state_by_formula() if model.sharded.plan.on_demand else 0
    return 16 * sum(parameter.numel() for parameter in model.local_parameters())


def memory_in_use() -> int:
    """Bytes allocated where the model computes, without what does not depend on the batch and comes
    and goes within a step: memory of gathered parameters, the slow one of activations, and cuBLAS's
    workspaces, which are given back here."""
    gathered = 0
    if state.model is not None and state.model.sharded is not None:
        use = state.model.sharded.store.use()
        gathered = use["live"] + use["spare"]
    if torch.cuda.is_available():
        # One for each thread that multiplied matrices, 32 MiB on an H100, kept until the end: as
        # many as microbatches are open, once each, of which one at a time computes.
        torch._C._cuda_clearCublasWorkspaces()
        return torch.cuda.memory_allocated() - gathered
    slow = 0
    if state.activation_store is not None:
        slow = state.activation_store.stats().arena_bytes
    return _runtime.heap_bytes() - gathered - slow
