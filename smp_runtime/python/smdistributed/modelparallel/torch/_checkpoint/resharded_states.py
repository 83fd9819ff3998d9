# SPDX-License-Identifier: Apache-2.0
"""The saved state of a job with other tensor-parallel slices, or other modules replaced, as if
this one had saved it.

Another number of shards needs none of this: a SavedState gives any run of elements.
"""

from __future__ import annotations

from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import (
    Slices,
    joined_entries,
    joined_optimizer,
)
from smdistributed.modelparallel.torch._checkpoint.saved_states import (
    SavedRanks,
    put_values,
    whole_entries_of,
)
from smdistributed.modelparallel.torch._slices.parameter_slices import slice_of
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates, state_dict_of
from smdistributed.modelparallel.torch._state.state_fit import (
    KIND_KEY,
    NAMES_KEY,
    check_kind,
    known_shapes,
    shapes_of,
    state_of,
)
from smdistributed.modelparallel.torch._state.tensor_states import axes_of, sliced_entries
from smdistributed.modelparallel.torch.model import DistributedModel


def resharded_state(
    saved: SavedRanks,
    slices: Slices,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
) -> _runtime.SavedState:
    """This rank's slices of what all tensor ranks of the saved job had together. Without
    ``optimizer`` its state is left out.

    Raises SMPCheckpointError for parts that are missing or of another model.
    """
    degree = saved.folder.tp
    of_ranks = [saved.state(rank, optimizer) for rank in range(degree)]
    models = [whole_entries_of(one) for one in of_ranks]
    entries = dict(model.renamed(joined_entries(models, slices.axes), slices.replaced, degree))
    if saved.is_sharded:
        put_values(model, entries, dict(entries))
    first = of_ranks[0]
    model.check_entries(shapes_of(entries), first.where, strict, whole=True)
    axes = axes_of(model.get_module())
    result = _runtime.SavedState(first.where)
    own_entries = sliced_entries(entries, axes)
    result.add_model(own_entries)
    if optimizer is not None:
        check_kind(state_of(first), optimizer.states.described(), first.where)
        joined = joined_optimizer(
            [_state_dict(one) for one in of_ranks],
            slices.axes,
            {name: value.shape for name, value in models[0].items()},
            lambda values: model.renamed(values, slices.replaced, degree),
            optimizer.states.parameter_names(),
            optimizer.states.groups_by_number(),
            lambda name, value: slice_of(value, axes.get(name)),
            first.where,
        )
        shapes = known_shapes(shapes_of(own_entries))
        result.add_optimizer({**joined, "loss_scaler": list(saved.loss_scale or ())}, [], shapes)
    return result


def _state_dict(saved: _runtime.SavedState) -> dict[str, Any]:
    names = [name for _, group in saved.groups for name in group]
    return {**state_dict_of(saved, names), NAMES_KEY: names, KIND_KEY: saved.kind}
