# SPDX-License-Identifier: Apache-2.0
"""Start and end of the library in a process: ``init``, ``is_initialized``, ``shutdown``."""

from __future__ import annotations

import atexit
import json
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed._fabric_defaults import set_fabric_defaults
from smdistributed.modelparallel.torch._report.memory_ledger import memory_summary
from smdistributed.modelparallel.torch._report.metric_outputs import metric_outputs
from smdistributed.modelparallel.torch._report.model_flops import ModelFlops, device_peak_flops
from smdistributed.modelparallel.torch._report.reported_loss import ReplicaLoss
from smdistributed.modelparallel.torch._report.step_meter import StepMeter
from smdistributed.modelparallel.torch._report.step_records import StepRecords, job_facts
from smdistributed.modelparallel.torch._session import cuda_on_cpu, log, mpi_world
from smdistributed.modelparallel.torch._session.groups import (
    backend_by_host,
    backend_for,
    make_group,
    register,
)
from smdistributed.modelparallel.torch._session.process_exit import failure_code, watch
from smdistributed.modelparallel.torch._session.script_line import script_line
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_inits = 0  # sets the keys of one init apart from those of an earlier one in the same store


@dataclass
class _Owner:
    """Of the session that ``init`` made."""

    process: int
    """The process that joined; its forked children are no ranks."""
    owns_torch: bool
    """Whether ``init`` initialised torch.distributed, and shutdown has to end it."""


_owner = _Owner(0, False)


def init(config: Mapping[str, Any] | None = None) -> None:
    """Joins the job: settings, ranks, groups. Call once, on all ranks, before anything else.

    Collective: blocks until all ranks have come, for at most ``SMP_TIMEOUT_SECONDS``. It also
    initialises ``torch.distributed``, unless the script has done so. A second call with equal
    settings has no effect but a warning.

    Args:
        config: settings, by the keys of ``mp_parameters``; those of the job
            (``SM_HP_MP_PARAMETERS``) have precedence.

    Raises:
        SMPConfigError: settings that are unknown, contradict each other, differ between ranks or do
            not fit the number of processes; or a second call with other settings.
        SMPValidationError: ``config`` is no mapping.
        SMPConnectionError: the other ranks are not reached.
        SMPCommTimeoutError: ranks did not come in time; the text names them.
        SMPDeviceError: ``ddp_dist_backend`` is nccl, and there is no GPU.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"microbatches": 4})
    >>> smp.rank(), smp.size(), smp.state.cfg.microbatches
    (0, 1, 4)
    >>> smp.shutdown()
    """
    options = _runtime.runtime_options(dict(os.environ))
    parallel = _settings(options, config)
    if state.initialized:
        _accept_second_init(parallel)
        return
    session = _start(parallel, options)
    if options.cuda_on_cpu:
        cuda_on_cpu.install()
    replica_loss = _replica_loss(session, parallel)
    meter, records = _meter(session, parallel, replica_loss), _records(session, options)
    state.begin(session, parallel, meter, replica_loss, records)
    for line in (*options.warnings, *parallel.warnings):
        log.warning(line)


def is_initialized() -> bool:
    """Whether ``init`` has been called; may be asked before.

    >>> is_initialized()
    False
    """
    return state.initialized


def is_tracing() -> bool:
    """Whether this is the run of a step that only watches the model.

    >>> is_tracing()
    False
    """
    return state.is_tracing


def shutdown() -> None:
    """Leaves the job. Called by itself when the process ends; without effect before ``init``.

    Rank 0 serves the store of the job, so it blocks until the others have left, for at most
    ``SMP_TIMEOUT_SECONDS``; the others do not block. Afterwards ``init`` may be called again.

    >>> shutdown()
    """
    if not state.initialized:
        return
    session = state.require_initialized("smp.shutdown")
    if _owner.process != os.getpid():
        return  # connections belong to the parent, which goes on
    atexit.unregister(shutdown)
    state.close_engine()
    if state.model is not None:
        state.model.checks.close()
    if state.meter is not None:
        state.meter.close()
    if state.records is not None:
        state.records.close()
    _leave(session)
    state.clear()
    if _owner.owns_torch and dist.is_initialized():
        dist.destroy_process_group()


def _settings(
    options: _runtime.RuntimeOptions, config: Mapping[str, Any] | None
) -> _runtime.ParallelConfig:
    if config is not None and not isinstance(config, Mapping):
        raise SMPValidationError(
            f"smp.init got {type(config).__name__}; expected a dict of settings or nothing"
        )
    try:
        # NumPy's and torch's scalars have item().
        text = json.dumps(dict(config or {}), default=lambda value: value.item())
    except (TypeError, AttributeError, ValueError) as error:
        raise SMPConfigError(
            f"smp.init(config): {config!r} holds something other than numbers, texts and booleans"
        ) from error
    return _runtime.make_parallel_config(
        options.parameters, "SM_HP_MP_PARAMETERS", text, "smp.init(config)"
    )


def _accept_second_init(parallel: _runtime.ParallelConfig) -> None:
    current = state.require_initialized("smp.init").config
    if parallel.as_json() != current.as_json():
        raise SMPConfigError(
            f"smp.init was called a second time with other settings: first {current.as_json()}, "
            f"now {parallel.as_json()}"
        )
    log.warning("smp.init was called a second time with the same settings; nothing to do")


def _start(parallel: _runtime.ParallelConfig, options: _runtime.RuntimeOptions) -> _runtime.Session:
    global _inits, _owner  # noqa: PLW0603 - of this process
    _owner = _Owner(os.getpid(), owns_torch=not dist.is_initialized())
    backend = backend_for(parallel.ddp_dist_backend)
    variables = dict(os.environ)
    ranks = None if _owner.owns_torch else _ranks_of_torch(variables)
    session = _runtime.Session(
        config=parallel,
        options=options,
        variables=variables,
        number=_inits,
        store=None if _owner.owns_torch else dist.distributed_c10d._get_default_store(),
        ranks=ranks,
        find_mpi=mpi_world.teller,
        script_line=script_line,
    )
    _inits += 1
    ranks = session.ranks
    log.configure(ranks.rank, ranks.size, options.log_level)
    for line in session.advice:
        log.warning(line)
    if _owner.owns_torch:
        register(backend)
        dist.init_process_group(
            backend,
            store=session.world_store,
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=options.timeout,
        )
    if parallel.pipeline_parallel_degree > 1:
        set_fabric_defaults()
    session.open_groups(backend, "gloo", backend_by_host(parallel.ddp_dist_backend), make_group)
    atexit.register(shutdown)
    # Not the session itself: its groups are to go with shutdown.
    own = weakref.ref(session)
    watch(lambda: (left := own()) is None or left.some_rank_ended_well())
    return session


def _ranks_of_torch(variables: dict[str, str]) -> _runtime.LaunchRanks:
    told = _runtime.launch_ranks(variables)
    return _runtime.LaunchRanks(
        dist.get_rank(),
        dist.get_world_size(),
        told.local_rank if told.launched else None,
        told.local_size if told.launched else None,
        "torch.distributed",
    )


def _replica_loss(session: _runtime.Session, cfg: _runtime.ParallelConfig) -> ReplicaLoss | None:
    """Of the ranks that have a loss, if there are several and the first one reports it."""
    with_a_loss = session.groups.ranks("DP")
    if not cfg.ddp or len(with_a_loss) == 1 or 0 not in with_a_loss:
        return None
    if session.ranks.rank == 0:
        session.store.set("reports", "yes" if _reports(session.options) else "")
    return ReplicaLoss(session.groups) if session.store.get("reports") else None


def _reports(options: _runtime.RuntimeOptions) -> bool:
    return options.progress or bool(metric_outputs(options))


def _meter(
    session: _runtime.Session, cfg: _runtime.ParallelConfig, replica_loss: ReplicaLoss | None
) -> StepMeter | None:
    """The first rank's, if anybody wants to know."""
    options = session.options
    if session.ranks.rank != 0 or not _reports(options):
        return None
    # With prescaled_batch the ranks of a tensor-parallel group get one batch.
    replicas = session.mesh.size(_runtime.Group.RDP if cfg.prescaled_batch else _runtime.Group.DP)
    outputs = metric_outputs(options)
    return StepMeter(
        replicas=replicas,
        pipeline=session.mesh.size(_runtime.Group.PP) > 1,
        outputs=outputs,
        flops=_flops(session, cfg, replicas) if outputs or torch.cuda.is_available() else None,
        progress=options.progress,
        ledger=memory_summary,
        replica_loss=replica_loss,
    )


def _flops(
    session: _runtime.Session, cfg: _runtime.ParallelConfig, replicas: int
) -> ModelFlops | None:
    """Not with tensor parallelism: a rank sees its slices of some modules and all of others."""
    if session.mesh.size(_runtime.Group.TP) > 1:
        return None
    return ModelFlops(
        microbatches=cfg.microbatches * replicas,
        ranks=session.ranks.size,
        peak=device_peak_flops(torch.cuda.get_device_name()) if torch.cuda.is_available() else None,
        seen_by_trace=session.mesh.size(_runtime.Group.PP) > 1,
    )


def _records(session: _runtime.Session, options: _runtime.RuntimeOptions) -> StepRecords | None:
    """Each rank's, if the environment wants any."""
    if session.recorder is None:
        return None
    records = StepRecords(session.recorder, memory_summary)
    records.note("job", job_facts(session, options))
    return records


def _leave(session: _runtime.Session) -> None:
    """Rank 0 serves the store, so it goes last; unless it failed, and the job ends anyway."""
    try:
        session.leave(failed=failure_code() != 0, serves=_owner.owns_torch)
    except RuntimeError as error:
        log.warning(str(error))
