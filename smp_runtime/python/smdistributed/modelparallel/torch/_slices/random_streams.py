# SPDX-License-Identifier: Apache-2.0
"""Dropout in regions of distributed layers.

Where all tensor ranks hold the same hidden states they drop the same of them; where each holds a
slice, or heads of its own, each draws its own numbers. Both streams are apart from torch's default
generator, which scripts seed differently on each rank; on one tensor rank that one is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn import functional

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import tp_rank, tp_size
from smdistributed.modelparallel.torch.state_mod import state

_STREAMS = 1 << 16  # more than there are tensor ranks


def _generator(own: bool, device: torch.device) -> torch.Generator:
    """The stream of this rank, or that of its tensor-parallel group."""
    key = (own, str(device))
    if key not in state.dropout_generators:
        generator = torch.Generator(device)
        replica = ranks.rdp_rank() * ranks.pp_size() + ranks.pp_rank()
        stream = 1 + tp_rank() if own else 0
        seed = state.cfg.tensor_parallel_seed
        generator.manual_seed((seed << 40) + replica * _STREAMS + stream)
        state.dropout_generators[key] = generator
    return state.dropout_generators[key]


def dropout(tensor: torch.Tensor, probability: float, training: bool, *, own: bool) -> torch.Tensor:
    """``functional.dropout``; ``own``: of what no other tensor rank holds."""
    if not training or probability == 0:
        return tensor
    if tp_size() == 1 or state.is_tracing:
        return functional.dropout(tensor, probability)
    keep = 1 - probability
    mask = torch.empty_like(tensor)
    mask.bernoulli_(keep, generator=_generator(own, tensor.device)).div_(keep)
    return tensor * mask


def follow_default_generator(device: torch.device) -> None:
    """Begins both streams anew, by a number that torch's default generator draws. What sets that
    one back, as ``torch.utils.checkpoint`` does, sets them back then."""
    if tp_size() == 1:
        return
    seed = int(torch.randint(1 << 40, ()))
    for own in (False, True):
        _generator(own, device).manual_seed(seed * _STREAMS + (1 + tp_rank() if own else 0))


class Snapshot:
    """State of the streams, to draw the same numbers once more when activations are recomputed."""

    def __init__(self) -> None:
        self._states = {key: g.get_state() for key, g in state.dropout_generators.items()}

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Inside, the streams go on from the snapshot; after it, from where they were."""
        streams, now = state.dropout_generators, Snapshot()
        all_streams = dict(streams)
        self._apply()
        for made_later in streams.keys() - self._states.keys():
            del streams[made_later]
        try:
            yield
        finally:
            streams.clear()
            streams.update(all_streams)
            now._apply()

    def _apply(self) -> None:
        for key, state_then in self._states.items():
            state.dropout_generators[key].set_state(state_then)
