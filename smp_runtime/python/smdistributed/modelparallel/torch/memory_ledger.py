# SPDX-License-Identifier: Apache-2.0
"""``smp.memory_summary``: what the state of the model takes on this rank."""

from __future__ import annotations

import torch

from smdistributed.modelparallel.torch.state_mod import state


def memory_summary() -> dict[str, int]:
    """Bytes on this rank, by what they are for. No communication; any rank may call it.

    Returns:
        ``parameters``: of modules, or their shards with masters; ``persistent``: those that are
        whole on all ranks, beside their masters; ``live`` and ``peak_live``: gathered now, and at
        most so far; ``gradients``; ``optimizer``: its state; ``activations``: those in slow memory
        (``offload_activations``). Activations that autograd keeps are not counted.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> model = smp.DistributedModel(torch.nn.Linear(3, 1))
    >>> smp.memory_summary()["parameters"]
    16
    >>> smp.shutdown()
    """
    state.require_initialized("smp.memory_summary")
    used = dict.fromkeys(
        ("parameters", "persistent", "live", "peak_live", "gradients", "optimizer", "activations"),
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
        used["parameters"] = sum(_bytes(parameter) for parameter in local)
        used["gradients"] = sum(_bytes(p.grad) for p in local if p.grad is not None)
    if state.optimizer is not None:
        used["optimizer"] = sum(
            _bytes(value)
            for held in state.optimizer.state.values()
            for value in held.values()
            if isinstance(value, torch.Tensor)
        )
    if state.activation_store is not None:
        used["activations"] = state.activation_store.stats().slow_bytes
    return used


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
