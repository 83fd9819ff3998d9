# SPDX-License-Identifier: Apache-2.0
"""A step in plain PyTorch, and whether it can be compared with the job's."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._self_check.module_watch import (
    STEP_FUNCTION,
    ModuleWatch,
    RandomState,
)
from smdistributed.modelparallel.torch._self_check.plain_calls import NotPlainError
from smdistributed.modelparallel.torch._self_check.reference_model import PlainRun, ReferenceModel
from smdistributed.modelparallel.torch._self_check.tolerances import tolerance
from smdistributed.modelparallel.torch._sharding.precision import computing_type
from smdistributed.modelparallel.torch.state_mod import holding, state


class NotComparableError(RuntimeError):
    """There is no plain counterpart of the step; the text says why."""


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic of the job: its type, and whether it has the kernels of the plain run on the same
    pieces."""

    dtype: torch.dtype
    same_kernels: bool

    @property
    def allowed(self) -> float:
        return tolerance(self.dtype, same_kernels=self.same_kernels)

    @property
    def rounds(self) -> bool:
        """Results depend on how 16 bits round."""
        return self.dtype.itemsize < 4 and not self.same_kernels


@dataclass(frozen=True)
class PlainStep:
    """The function of a step, and what the replicas gave it, with their random numbers. Modules
    that are ``seeded`` draw from streams of their own; see ModuleWatch."""

    reference: ReferenceModel
    number: int
    function: Callable[[Any], Any]
    replicas: list[tuple[list[Any], RandomState]]
    seeded: Collection[str]

    def run(self, model: Any, scale: float) -> tuple[Arithmetic, PlainRun, PlainRun | None]:
        """The run, and where rounding in 16 bits decides one in 32 bits. Raises
        NotComparableError."""
        run = self._run(model, scale, wide=False)
        dtype = next(iter(run.types), None) or computing_type() or _narrowest(self.reference)
        # Layers in the place of others have kernels of their own, also on one tensor rank.
        same = not (torch.cuda.is_available() or ranks.tp_size() > 1 or model.replaced())
        how = Arithmetic(dtype, same)
        wide = self._run(model, scale, wide=True) if how.rounds else None
        return how, run, wide

    def _run(self, model: Any, scale: float, *, wide: bool) -> PlainRun:
        watch = ModuleWatch(self.reference.place, self.number, self.seeded, noticing=True)
        try:
            with holding(state, in_step=True):
                result = self.reference.run(
                    model, self.function, self.replicas, scale, watch, wide=wide
                )
        except NotPlainError as error:
            raise NotComparableError(str(error)) from error
        except Exception as error:
            raise NotComparableError(
                f"its function fails with the plain module: {type(error).__name__}: {error}"
            ) from error
        strange = [name for name in watch.drew if name not in self.seeded]
        if strange and (has_streams() or torch.cuda.is_available()):
            raise NotComparableError(_other_numbers(strange[0]))
        return result


def has_streams() -> bool:
    """True if ranks that share a copy of the model draw random numbers of their own."""
    return ranks.pp_size() > 1 or ranks.tp_size() > 1


def _other_numbers(name: str) -> str:
    where = "its function" if name == STEP_FUNCTION else f"module {name or '(root)'}"
    return (
        f"{where} draws random numbers, whose streams are by design other ones with several "
        "partitions, tensor ranks or a GPU; check once with dropout 0, or with one partition"
    )


def _narrowest(reference: ReferenceModel) -> torch.dtype:
    """The narrowest type of the parameters, in which a job without 16-bit settings computes."""
    types = [p.dtype for p in reference.module.parameters() if p.is_floating_point()]
    return min(types, key=lambda dtype: dtype.itemsize, default=torch.float32)
