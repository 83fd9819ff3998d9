# SPDX-License-Identifier: Apache-2.0
"""One step of a job while it is checked: what ranks give the first one, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._self_check.findings import Divisors, Finding, Outcome
from smdistributed.modelparallel.torch._self_check.module_watch import (
    ModuleWatch,
    RandomState,
    Sizes,
    random_state,
)
from smdistributed.modelparallel.torch._self_check.plain_step import (
    NotComparableError,
    PlainStep,
    has_streams,
)
from smdistributed.modelparallel.torch._self_check.reference_model import ReferenceModel
from smdistributed.modelparallel.torch._self_check.step_comparison import (
    compare_gradients,
    compare_results,
)
from smdistributed.modelparallel.torch._self_check.step_values import (
    KeptInputs,
    keep_inputs,
    leaves_of,
    restore_inputs,
)
from smdistributed.modelparallel.torch._self_check.whole_states import (
    Values,
    copies_that_differ,
    gradients_of_shards,
    named_as_before,
    takes_part,
    whole_gradients,
    whole_values,
)
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state


class CheckedStep:
    """``begin`` before the step, ``end`` behind it; both collective over the job."""

    def __init__(
        self,
        model: Model,
        reference: ReferenceModel | None,
        outcome: Outcome,
        function: Callable[[Any], Any],
    ) -> None:
        self.gradients_are_due = False
        """The step has left averaged gradients."""
        self._model, self._reference, self._outcome = model, reference, outcome
        self._function = function
        self._number = outcome.steps + 1
        self._values: Values = {}
        self._sums: Values | None = None
        self._replicas: list[tuple[list[Any], RandomState]] = []
        self._impossible: str | None = None
        self._drift: str | None = None
        # Ranks whose modules run elsewhere in plain PyTorch draw from streams by module's name.
        self._seeded = frozenset(modules_in_one_place(model) if has_streams() else ())
        self._watch = ModuleWatch(self._place, self._number, self._seeded, noticing=False)

    def _place(self) -> tuple[int, int]:
        return _replica(), state.require_engine().microbatch

    # --- Before the step ---

    def begin(self, split: Callable[[], list[Any]]) -> None:
        model = self._model
        if takes_part(model):
            self._values = whole_values(model)
            if not model.replicas.is_accumulating:
                state.optimizers.begin_accumulation()
                self._sums = named_as_before(model, self._gather_gradients())
        self._drift = copies_that_differ(model)
        if ranks.pp_rank() == 0:
            self._gather_inputs(split)
        reference = self._reference
        if reference is not None:
            self._take(reference)
        self._watch.open(kept_modules(model))

    def _gather_inputs(self, split: Callable[[], list[Any]]) -> None:
        microbatches: list[Any] = []
        kept: KeptInputs | None = None
        try:
            microbatches = split()
            kept = keep_inputs(microbatches)
        except Exception as error:  # the step will say so itself
            self._impossible = f"its arguments cannot be copied: {type(error).__name__}: {error}"
        try:
            for inputs, numbers in _by_replica((kept, random_state())):
                if inputs is not None:
                    self._replicas.append((restore_inputs(inputs, microbatches), numbers))
        except ValueError as error:
            self._impossible = str(error)

    def _take(self, reference: ReferenceModel) -> None:
        """The first rank's copy begins the step as the job does."""
        plain = named_as_before(self._model, self._values)
        if reference.initial is not None:
            self._look_at_initial(reference, plain)
        try:
            missing = reference.take(plain, self._model)
        except RuntimeError as error:
            self._impossible = f"the job's values do not fit the module that was wrapped: {error}"
            return
        if missing:
            self._impossible = f"no values for {', '.join(missing)} of the module that was wrapped"
        if self._sums is not None:
            reference.begin_gradients(self._sums)

    def _look_at_initial(self, reference: ReferenceModel, plain: Values) -> None:
        initial, reference.initial = reference.initial, None
        assert initial is not None
        other = [
            name
            for name, value in initial.items()
            if name in plain and not torch.equal(value.to(plain[name].dtype), plain[name])
        ]
        if other:
            self._outcome.notes[
                f"{len(other)} parameters begin with other values than when they were wrapped, "
                f"{other[0]} first: loaded or made anew since?"
            ] = None

    # --- Behind it ---

    def close(self) -> None:
        self._watch.close()

    def end(self, outputs: list[Any], backward_ran: bool) -> Finding | str | None:
        """Compares the step, and returns a difference, as far as this rank knows."""
        self.close()
        model = self._model
        sizes = _merged(comm.allgather(self._watch.sizes, comm.CommGroup.WORLD))
        found: list[Any] = []
        if ranks.pp_rank() == 0:
            found = _by_replica(leaves_of(outputs))
        self.gradients_are_due = backward_ran and model.replicas.gradients_are_due
        gradients = None
        if self.gradients_are_due and takes_part(model):
            gradients = self._gather_gradients()
        if self._drift is not None:
            return (
                f"SMP_SELF_CHECK: before checked step {self._number} {self._drift}: copies of the "
                "model have drifted apart, by an update with gradients that were not averaged, or "
                "a change of weights on one rank"
            )
        reference = self._reference
        if reference is None:
            return None
        return self._compare(reference, found, sizes, gradients, backward_ran)

    def _gather_gradients(self) -> Values:
        model = self._model
        if model.sharded is None:
            return whole_gradients(model, self._values)
        gradients = gradients_of_shards(model)
        zeros = {name: torch.zeros_like(value, dtype=torch.float32)
                 if value.is_floating_point() else value
                 for name, value in self._values.items()}  # fmt: skip
        for name, gradient in gradients.items():
            if name in zeros:
                zeros[name] = gradient.reshape(zeros[name].shape)
        return zeros

    def _compare(
        self,
        reference: ReferenceModel,
        found: list[Any],
        sizes: Sizes,
        gradients: Values | None,
        backward_ran: bool,
    ) -> Finding | None:
        outcome, model = self._outcome, self._model
        loss_scale = 1.0 if state.optimizer is None else state.optimizer.loss_scale
        microbatches = state.cfg.microbatches if model.averages_over_microbatches else 1
        step = PlainStep(reference, self._number, self._function, self._replicas, self._seeded)
        try:
            if self._impossible is not None:
                raise NotComparableError(self._impossible)
            how, run, wide = step.run(model, loss_scale / microbatches)
        except NotComparableError as error:
            outcome.leave_out(f"results and gradients of step {self._number}: {error}")
            return None
        finding = compare_results(found, run, wide, sizes, how, outcome)
        if finding is not None or gradients is None:
            return finding
        if run.backward_ran != backward_ran:
            return Finding("whether a backward ran", 1.0, 0.0, "a step that ran otherwise")
        if model.replicas.has_hook:
            outcome.leave_out("gradients: a hook of the script reduces them")
            return None
        hooked = [name for name, p in model.named_parameters() if p._post_accumulate_grad_hooks]
        if hooked:
            outcome.leave_out(
                f"gradients: parameter {hooked[0]} has a hook behind the accumulation, which comes "
                "once for all microbatches where masters have gradients"
            )
            return None
        divisors = Divisors(len(self._replicas), state.cfg.microbatches, loss_scale)
        return compare_gradients(
            named_as_before(model, gradients), reference, how, divisors, outcome
        )


def _replica() -> int:
    """Number of the batch that this rank computes with."""
    return ranks.rdp_rank() if state.cfg.prescaled_batch else ranks.dp_rank()


def _by_replica(mine: Any) -> list[Any]:
    """What each replica has, in their order, on the first rank; else nothing. Ranks of a
    tensor-parallel group that share a batch count once."""
    own = (_replica(), ranks.tp_rank(), mine)
    if ranks.dp_rank() != 0:
        comm.send(own, 0, comm.RankType.DP_RANK)
        return []
    of_others = (comm.recv_from(n, comm.RankType.DP_RANK) for n in range(1, ranks.dp_size()))
    return [given for _, tp_rank, given in sorted([own, *of_others], key=lambda one: one[:2])
            if tp_rank == 0 or not state.cfg.prescaled_batch]  # fmt: skip


def _merged(all_sizes: list[Sizes]) -> Sizes:
    merged: Sizes = {}
    for sizes in all_sizes:
        for name, values in sizes.items():
            merged.setdefault(name, []).extend(values)
    return merged


def kept_modules(model: Model) -> Iterator[tuple[str, nn.Module]]:
    """Modules of this rank's partition that tensor parallelism has not replaced, with names."""
    replaced = tuple(model.replaced())
    return (
        (name, module)
        for name, module in model.local_named_modules()
        if not _is_inside(name, replaced)
    )


def modules_in_one_place(model: Model) -> list[str]:
    """Names of those of all partitions that have everything inside them on the same one."""
    ownership, replaced = model.ownership, tuple(model.replaced())
    return [
        name
        for name, module in model.get_module().named_modules()
        if not _is_inside(name, replaced)
        and len({ownership.of_module(part) for part in module.modules()}) == 1
    ]


def _is_inside(name: str, replaced: tuple[str, ...]) -> bool:
    """True if a module is, or is in, one of those that were replaced."""
    return any(one in ("", name) or name.startswith(f"{one}.") for one in replaced)
