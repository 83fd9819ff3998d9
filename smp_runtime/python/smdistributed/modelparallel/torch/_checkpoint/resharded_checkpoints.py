# SPDX-License-Identifier: Apache-2.0
"""Goes on from the parts of all tensor ranks of a job with other slices or modules."""

from __future__ import annotations

from collections.abc import Callable

from smdistributed.modelparallel.torch._checkpoint.sharded_checkpoints import ShardedParts, put_values
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import (
    Slices,
    joined_entries,
    joined_optimizer,
)
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PartialCheckpoint
from smdistributed.modelparallel.torch._slices.parameter_slices import slice_of
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates
from smdistributed.modelparallel.torch._state.state_fit import (
    check_kind,
    shapes_of,
    state_of_plain,
)
from smdistributed.modelparallel.torch._state.tensor_states import axes_of, sliced_entries
from smdistributed.modelparallel.torch.model import DistributedModel


def read_resharded_parts(
    parts: ShardedParts,
    saved: PartialCheckpoint,
    slices: Slices,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
) -> Callable[[], None]:
    """Reads the files, and returns what loads them: where this job has sharded or 16-bit state that
    is collective, so no rank may have failed before. Without ``optimizer`` its state is left out.

    Raises SMPCheckpointError for parts that are missing or of another model.
    """
    of_ranks = [parts.plain(rank, optimizer is not None) for rank in range(saved.tp)]
    models = [entries for entries, _ in of_ranks]
    entries = dict(model.renamed(joined_entries(models, slices.axes), slices.replaced, saved.tp))
    if parts.is_sharded:
        put_values(model, entries, dict(entries))
    where = str(saved.folder)
    model.check_entries(shapes_of(entries), where, strict, whole=True)
    own_axes = axes_of(model.get_module())
    whole = None
    if optimizer is not None:
        state = of_ranks[0][1]
        own = optimizer.states.described()
        check_kind(state_of_plain(state, own, where), own, where)
        whole = joined_optimizer(
            [state for _, state in of_ranks],
            slices.axes,
            {name: value.shape for name, value in models[0].items()},
            lambda values: model.renamed(values, slices.replaced, saved.tp),
            optimizer.states.parameter_names(),
            optimizer.states.groups_by_number(),
            lambda name, value: slice_of(value, own_axes.get(name)),
            where,
        )
        if "loss_scaler" in of_ranks[0][1]:
            whole["loss_scaler"] = of_ranks[0][1]["loss_scaler"]

    def load() -> None:
        model.load_slices(sliced_entries(entries, own_axes))
        if optimizer is not None and whole is not None:
            model.when_partitioned(lambda: optimizer.states.load_parts([whole], saved.folder))

    return load
