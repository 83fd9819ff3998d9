# SPDX-License-Identifier: Apache-2.0
"""``SMP_SELF_CHECK=N``: the first N steps of a job once more in plain PyTorch, beside it.

Before a step the first rank gets the values of the model and the batches of all replicas; behind it
what the replicas' functions returned and the gradients, and around the update that follows it
values, gradients and state of the optimizer. It computes the same with the module as it was, and
all ranks raise if something differs. Steps begin from what the job has, so that nothing adds up.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from smdistributed.modelparallel.torch._ranks import comm, log, ranks
from smdistributed.modelparallel.torch._self_check.checked_step import CheckedStep
from smdistributed.modelparallel.torch._self_check.findings import Finding, Outcome
from smdistributed.modelparallel.torch._self_check.plain_update import (
    CannotRepeatError,
    plain_update,
)
from smdistributed.modelparallel.torch._self_check.reference_model import ReferenceModel
from smdistributed.modelparallel.torch._self_check.step_comparison import compare_update
from smdistributed.modelparallel.torch._self_check.whole_states import (
    WholeState,
    takes_part,
    whole_state,
)
from smdistributed.modelparallel.torch.exceptions import SMPSelfCheckError, SMPUnsupportedError
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state


def open_self_check(module: nn.Module) -> SelfCheck | None:
    """The check of a model about to be made of ``module``, where the job asks for one; collective
    over the job then. Raises SMPUnsupportedError on all ranks where the first one cannot keep a
    copy."""
    steps = state.require_initialized("SMP_SELF_CHECK").options.self_checked_steps
    return SelfCheck(module, steps) if steps else None


class SelfCheck:
    """Check of one model, for the library's own modules; ``begin_step`` and ``end_step`` are
    collective over the job in a step that is checked, and so are the updates behind it."""

    def __init__(self, module: nn.Module, steps: int) -> None:
        self.outcome = Outcome()
        self._steps = steps
        self._reference: ReferenceModel | None = None
        refusal = self._keep(module) if ranks.rank() == 0 else None
        refusal = comm.broadcast_from_rank0(refusal)
        if refusal is not None:
            raise SMPUnsupportedError(refusal)
        self._whole_layers = _whole_layers(module)
        self._step: CheckedStep | None = None
        self._told = False
        self._model: weakref.ref[Model] | None = None
        self._update_is_due = False
        # A step of a class calls that of its base, and each has the hooks: the outermost counts.
        self._updating: torch.optim.Optimizer | None = None
        self._depth = 0
        self._before: tuple[WholeState, dict[int, torch.Tensor]] | None = None
        self._hooks: list[RemovableHandle] = []

    def _keep(self, module: nn.Module) -> str | None:
        """Copies the module; why it cannot, if so."""
        needed, available = needed_bytes(module), available_bytes()
        if available is not None and needed > available:
            return (
                f"SMP_SELF_CHECK needs {needed:,} bytes on rank 0's host for the plain model, its "
                f"gradients and the optimizer's state, besides activations, and {available:,} are "
                "free; check the script with a smaller model, or leave SMP_SELF_CHECK out"
            )
        try:
            self._reference = ReferenceModel(module)
        except Exception as error:
            return (
                f"SMP_SELF_CHECK cannot copy the module that is wrapped: {type(error).__name__}: "
                f"{error}; make it one that copy.deepcopy takes, or leave SMP_SELF_CHECK out"
            )
        log.info(
            f"SMP_SELF_CHECK: {self._steps} steps are computed once more in plain PyTorch; that "
            f"takes {needed:,} bytes on this host, besides activations"
        )
        return None

    def watch(self, model: Model) -> None:
        """The model is made."""
        self._model = weakref.ref(model)
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]

    def close(self) -> None:
        """The session ends."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self.outcome.steps:
            self._tell()

    # --- Steps ---

    def begin_step(
        self, model: Model, function: Callable[[Any], Any], split: Callable[[], list[Any]]
    ) -> None:
        """A step is about to run ``function`` on what ``split`` makes of its arguments on a first
        rank of a pipeline; other ranks' is not called."""
        self._update_is_due, self._updating = False, None
        if self._step is not None:  # it failed
            self._step.close()
            self._step = None
        if not torch.is_grad_enabled():
            return
        if self.outcome.steps == self._steps:
            self._tell()
            return
        if model.replicas.join is not None:
            self.outcome.leave_out("steps inside DistributedModel.join")
            return
        if self._whole_layers is not None:
            self.outcome.leave_out(self._whole_layers)
            return
        self._step = CheckedStep(model, self._reference, self.outcome, function)
        self._step.begin(split)

    def end_step(self, outputs: list[Any], backward_ran: bool) -> None:
        """The step has run, and its gradients were averaged if that was due."""
        step, self._step = self._step, None
        if step is None:
            return
        finding = step.end(outputs, backward_ran)
        self.outcome.steps += 1
        self._agree(finding)
        self._update_is_due = step.gradients_are_due

    def _agree(self, finding: Finding | str | None) -> None:
        """Raises SMPSelfCheckError on all ranks if one has found something."""
        text = finding.text(self.outcome.steps) if isinstance(finding, Finding) else finding
        found = [text for text in comm.allgather(text, comm.CommGroup.WORLD) if text]
        if found:
            self._told = True
            if ranks.rank() == 0:
                state.reports.event("self_check", found[0])
            raise SMPSelfCheckError(found[0])

    def _tell(self) -> None:
        if self._told or ranks.rank() != 0:
            return
        self._told, self._reference = True, None
        line = self.outcome.line()
        log.info(f"SMP_SELF_CHECK: {line}")
        state.reports.event("self_check", line)

    # --- Updates ---

    def _before_update(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._updating is not None:
            self._depth += self._updating is optimizer
            return
        model = None if self._model is None else self._model()
        if not self._update_is_due or model is None or not _steps_of(optimizer, model):
            return
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            self.outcome.leave_out("weights after an update with a closure")
            return
        self._updating, self._depth, self._before = optimizer, 1, None
        if not takes_part(model):
            return
        before = whole_state(optimizer)
        if ranks.rank() != 0:
            return
        try:
            self._before = before, plain_update(optimizer, before)
        except CannotRepeatError as error:
            self.outcome.leave_out(f"weights after an update: {error}")
        except Exception as error:
            self.outcome.leave_out(
                f"weights after an update: {type(optimizer).__name__} fails over whole parameters: "
                f"{type(error).__name__}: {error}"
            )

    def _after_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        model = None if self._model is None else self._model()
        if self._updating is not optimizer or model is None:
            return
        self._depth -= 1
        if self._depth > 0:
            return
        self._updating = None
        after = whole_state(optimizer) if takes_part(model) else None
        before, self._before = self._before, None
        finding = None
        if before is not None and after is not None:
            finding = compare_update(before[0], after, before[1], self.outcome)
        self._agree(finding)


def _steps_of(optimizer: torch.optim.Optimizer, model: Model) -> bool:
    """True if the optimizer steps parameters of the model, or their masters."""
    if state.optimizers.wrapper_of(optimizer) is not None:
        return True
    own = {p for group in optimizer.param_groups for p in group["params"]}
    return not own.isdisjoint(model.parameters())


def _whole_layers(module: nn.Module) -> str | None:
    """Says why there is no plain model; None where there is."""
    if ranks.tp_size() == 1:
        return None
    for name, part in module.named_modules():
        if isinstance(part, DistributedModule):
            return (
                f"anything: module {name or '(root)'} is a {type(part).__name__} that the script "
                "makes itself, of which each rank has a slice; check with tensor_parallel_degree 1"
            )
    return None


_ROOT = Path("/")
#: Copies of each parameter at the worst moment, the update: the copy; values, gradients and two
#: moments before it, as they came and as they are stepped; values and moments after it.
_COPIES = 12


def needed_bytes(module: nn.Module) -> int:
    """Memory that the first rank needs to check steps of ``module``, apart from activations.

    >>> needed_bytes(nn.Linear(2, 3))
    432
    """
    elements = sum(parameter.numel() for parameter in module.parameters())
    wide = any(p.element_size() > 4 for p in module.parameters())
    buffers = sum(buffer.nbytes for buffer in module.buffers())
    return _COPIES * elements * (8 if wide else 4) + buffers


def available_bytes(root: Path = _ROOT) -> int | None:
    """Memory that processes of this host or container may still take; None where the system does
    not say."""
    limits = [_host(root), _container(root)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _host(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container(root: Path) -> int | None:
    """Memory left in the control group, version 2 or 1; that of cached files can be taken back."""
    for limit, used, held, key in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
         "total_inactive_file"),
    ):  # fmt: skip
        folder = root / "sys/fs/cgroup"
        numbers = [*_lines(folder / limit), *_lines(folder / used)]
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            stats = dict(line.split()[:2] for line in _lines(folder / held))
            free = int(numbers[0]) - int(numbers[1]) + int(stats.get(key, 0))
            return max(0, free)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
