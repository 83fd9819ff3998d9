# SPDX-License-Identifier: Apache-2.0
"""State of this process in its job: one object, ``smp.state``.

Its session is the process's part in the job, from ``smp.init`` to ``smp.shutdown``; its engine runs
the steps of the pipeline.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._job_optimizers import JobOptimizers
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPNotInitializedError
from smdistributed.modelparallel.torch.ports import Model, Onlooker, Reports, StopBoundary


@contextlib.contextmanager
def holding(owner: Any, **attributes: Any) -> Iterator[None]:
    """Inside, ``owner`` has ``attributes``; afterwards the values that it had before.

    >>> with holding(state, is_tracing=True):
    ...     state.is_tracing
    True
    >>> state.is_tracing
    False
    """
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


class State:
    """``cfg`` holds every setting as an attribute, aliases included. The rest is the library's."""

    def __init__(self) -> None:
        self.optimizers = JobOptimizers()
        """All that ``smp.DistributedOptimizer`` wrapped, for the library's own modules."""
        self._at_begin: list[Callable[[], None]] = []
        self.onlooker: Onlooker | None = None
        """Watches a script that is only planned for; None in a job."""
        self.clear()

    def clear(self) -> None:
        """Back to what it is before ``smp.init()``."""
        self.optimizers.detach()
        self._session: _runtime.Session | None = None
        self._engine: _runtime.Engine | None = None
        self.activation_store: _runtime.ActivationStore | None = None
        self._cfg: _runtime.ParallelConfig | None = None
        self.model: Model | None = None
        self.optimizers = JobOptimizers()
        self._reports: Reports | None = None
        self.stop_save: StopBoundary | None = None
        self.background_saves: _runtime.BackgroundSaves | None = None
        self.memory_checkpoints: dict[str, _runtime.MemoryCheckpoints] = {}  # by path
        self.in_step = False
        self.is_scaling = False  # a GradScaler that knows of the other ranks steps the optimizer
        # Context of the thread that called the step, for modules that serve other ranks.
        self.step_context = contextvars.copy_context()
        self.inputs_are_checked = False  # the batches of the tensor-parallel group were compared
        self.is_tracing = False  # see smp.is_tracing()
        # State of distributed modules: their group, the number of their parameters, their dropout.
        self.tensor_exchange: _runtime.TensorExchange | None = None
        self.drawn_parameters = 0
        self.dropout_generators: dict[tuple[bool, str], torch.Generator] = {}

    def begin(
        self, session: _runtime.Session, cfg: _runtime.ParallelConfig, reports: Reports
    ) -> None:
        self._session, self._cfg, self._reports = session, cfg, reports
        for act in self._at_begin:
            act()

    def when_begun(self, act: Callable[[], None]) -> None:
        """Has ``act`` run by each ``smp.init()`` from now on: for rooms that this one does not
        know."""
        self._at_begin.append(act)

    @property
    def optimizer(self) -> Any:
        """Optimizer that ``smp.DistributedOptimizer`` made last; None before."""
        return self.optimizers.last

    @property
    def initialized(self) -> bool:
        return self._session is not None

    def require_initialized(self, what: str) -> _runtime.Session:
        """The session; raises SMPNotInitializedError that names ``what`` before ``smp.init()``."""
        if self._session is None:
            raise SMPNotInitializedError(
                f"{what} was used before smp.init(); call smp.init() first"
            )
        return self._session

    @property
    def cfg(self) -> _runtime.ParallelConfig:
        """Effective settings, such as ``smp.state.cfg.microbatches``: every key of
        ``mp_parameters``, with its type."""
        self.require_initialized("smp.state.cfg")
        assert self._cfg is not None
        return self._cfg

    @property
    def reports(self) -> Reports:
        """Reports of this rank's steps."""
        self.require_initialized("smp.state.reports")
        assert self._reports is not None
        return self._reports

    @property
    def module_manager(self) -> SimpleNamespace:
        """Namespace that published callers ask for. Its ``translate_functions`` translate whole
        state dicts, as pairs (to the names that the model had before modules were replaced, and
        back)."""
        translations = [] if self.model is None else self.model.translations()
        return SimpleNamespace(translate_functions=translations)

    @property
    def param_index_to_name_tp_group(self) -> list[dict[int, str]]:
        """One dict a tensor rank, with the names of the model's parameters by their place in
        ``named_parameters()``. Tensor ranks have the same modules, so all of them are alike."""
        if self.model is None:
            raise SMPNotInitializedError(
                "smp.state.param_index_to_name_tp_group: there is no model; call "
                "smp.DistributedModel first"
            )
        names = [name for name, _ in self.model.named_parameters()]
        return [dict(enumerate(names)) for _ in range(self.cfg.tensor_parallel_degree)]

    @property
    def param_name_to_index_tp_group(self) -> list[dict[str, int]]:
        """``param_index_to_name_tp_group`` the other way round."""
        return [
            {name: index for index, name in names.items()}
            for names in self.param_index_to_name_tp_group
        ]

    def refuse_replicas_without_ddp(self) -> None:
        """Raises SMPConfigError if a model that is wrapped would be several that drift apart."""
        session = self.require_initialized("smp.DistributedModel")
        refusal = _runtime.refusal_to_wrap(session.config, session.ranks.size)
        if refusal is not None:
            raise SMPConfigError(refusal)

    # --- What the pipeline runs on ---

    def run_on(
        self, engine: _runtime.Engine, activation_store: _runtime.ActivationStore | None
    ) -> None:
        self._engine, self.activation_store = engine, activation_store

    def require_engine(self) -> _runtime.Engine:
        if self._engine is None:
            raise SMPNotInitializedError(
                "a step was run before its model was wrapped; call smp.DistributedModel first"
            )
        return self._engine

    def close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def internal_group_name(self, kind: str) -> str:
        """Name of a c10d group of our own for tensors on the model's device. Collective over it."""
        groups = self.require_initialized("a process group").groups
        return str(groups.internal_group(kind).group_name)


state = State()
