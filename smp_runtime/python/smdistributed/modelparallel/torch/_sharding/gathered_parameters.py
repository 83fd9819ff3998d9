# SPDX-License-Identifier: Apache-2.0
"""Whole values of sharded parameters, for a script that looks at them between steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from torch import nn

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPUnsupportedError
from smdistributed.modelparallel.torch.state_mod import state


@contextlib.contextmanager
def gathered_parameters(
    parameters: nn.Module | nn.Parameter | Iterable[nn.Parameter],
) -> Iterator[None]:
    """The values of ``parameters`` are here inside of ``with smp.gathered_parameters(...):``.

    For reading, as for a norm in the log: with sharded data parallelism a rank has shards of them
    between steps. Where nothing is sharded nothing happens. In a step's function it is not needed:
    there each read gathers what it reads. Collective over the shard group: enter it on all ranks,
    in the same order. All values are in memory until it is left, so hand over what you look at.

    Args:
        parameters: a parameter, several, or a module for all of its own.

    Raises:
        SMPStepError: inside of a step's function; or a parameter was written to, on leaving: a
            change would be lost, use ``model.load_state_dict()``.
        SMPUnsupportedError: a parameter is on another partition, or tensor-parallel ranks split it.
    """
    model = state.model
    if isinstance(parameters, nn.Module):
        wanted = list(parameters.parameters())
    else:
        wanted = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
    if model is None or not model.partitioned:
        yield
        return
    if state.in_step:
        raise SMPStepError(
            "smp.gathered_parameters was entered inside a function decorated with smp.step, where "
            "reading a parameter gathers it; use it between steps"
        )
    named = {parameter: name for name, parameter in model.named_parameters()}
    sliced = [named[p] for p in wanted if p in named and distribution_axis(p) is not None]
    if sliced and ranks.tp_size() > 1:
        raise SMPUnsupportedError(
            f"smp.gathered_parameters: {sliced[0]} is split over {ranks.tp_size()} tensor-parallel "
            "ranks, of which each has a slice; take it from model.state_dict(), on all ranks"
        )
    here = set(model.local_parameters())
    elsewhere = [named[p] for p in wanted if p in named and p not in here]
    if elsewhere:
        raise SMPUnsupportedError(
            f"smp.gathered_parameters: {elsewhere[0]} is on another partition than this rank's, "
            f"{ranks.pp_rank()}; take its values from model.state_dict(), on all ranks"
        )
    if model.sharded is None or not model.sharded.plan.on_demand:
        yield
        return
    with model.sharded.gathered(wanted):
        yield
