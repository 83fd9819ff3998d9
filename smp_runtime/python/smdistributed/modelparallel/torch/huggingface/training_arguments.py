# SPDX-License-Identifier: Apache-2.0
"""Answers of ``TrainingArguments`` on processes and devices, by the ranks of the job."""

from __future__ import annotations

import contextlib
import copyreg
import os
from collections.abc import Iterator
from typing import Any

import torch
from transformers.training_args import ParallelMode

from smdistributed.modelparallel.torch._ranks import comm, log, ranks
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPUnsupportedError
from smdistributed.modelparallel.torch.state_mod import holding, state

# Arguments for what the library does instead, or not at all, and what to do without them.
_REFUSED = {
    "deepspeed": "set sharded_data_parallel_degree in mp_parameters",
    "fsdp": "set sharded_data_parallel_degree in mp_parameters",
    "torch_compile": "leave it out",
    "auto_find_batch_size": "choose per_device_train_batch_size",
    "predict_with_generate": "generate with the model that save_model wrote",
    "use_liger_kernel": "leave it out",
}
# Both spellings of what set_activation_checkpointing does; the later one is an alias of the other.
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")


def replicas() -> int:
    """Number of different batches that a step of the job takes."""
    return ranks.rdp_size() if state.cfg.prescaled_batch else ranks.dp_size()


def replica_index() -> int:
    """Number of this rank's batch among those of ``replicas``."""
    return ranks.rdp_rank() if state.cfg.prescaled_batch else ranks.dp_rank()


def replica_group() -> comm.CommGroup:
    """One rank of each replica, as far as they are fed different batches."""
    return comm.CommGroup.RDP_GROUP if state.cfg.prescaled_batch else comm.CommGroup.DP_GROUP


MIXIN: Any = object
"""Base of what stands before another class, whose attributes it has then."""


class RankArguments(MIXIN):  # type: ignore[misc]
    """Stands before the class of a script's arguments: processes are replicas of the model, and
    the first rank of the job is the main process."""

    counts_ranks = False
    """Inside ``each_rank_by_itself``: processes are ranks."""

    @property
    def _setup_devices(self) -> torch.device:
        if self.use_cpu or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())

    @property
    def n_gpu(self) -> int:
        return 1

    @property
    def parallel_mode(self) -> Any:
        return ParallelMode.NOT_PARALLEL

    @property
    def world_size(self) -> int:
        return ranks.size() if self.counts_ranks else replicas()

    @property
    def process_index(self) -> int:
        return ranks.rank() if self.counts_ranks else replica_index()

    @property
    def local_process_index(self) -> int:
        return ranks.local_rank()

    @property
    def should_log(self) -> bool:
        return self._speaks(self.log_on_each_node)

    @property
    def should_save(self) -> bool:
        return self._speaks(self.save_on_each_node)

    @staticmethod
    def _speaks(on_each_host: bool) -> bool:
        return (ranks.local_rank() if on_each_host else ranks.rank()) == 0

    @property
    def place_model_on_device(self) -> bool:
        return False

    @contextlib.contextmanager
    def main_process_first(self, local: bool = True, desc: str = "work") -> Iterator[None]:
        """The first rank, of each host or of the job, goes before the others."""
        first = (ranks.local_rank() if local else ranks.rank()) == 0
        if not first:
            comm.barrier()
        try:
            yield
        finally:
            if first:
                comm.barrier()

    def each_rank_by_itself(self) -> contextlib.AbstractContextManager[None]:
        """Inside, what is written once a process is written once a rank."""
        return holding(self, counts_ranks=True)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Files hold the script's own class: training_args.bin is read without the library."""
        values = {name: value for name, value in self.__dict__.items() if name != "counts_ranks"}
        # Not by the usual __newobj__, for which pickle wants an object of just this class.
        return copyreg._reconstructor, (type(self).__mro__[2], object, None), values  # type: ignore[attr-defined]


def adapt_arguments(args: Any) -> None:
    """Makes ``args``, of a script's class, speak of ranks. A second call does nothing.

    Raises:
        SMPUnsupportedError: an argument for what does not go with the library, named.
        SMPConfigError: fp16 here and not in ``mp_parameters``.
    """
    if isinstance(args, RankArguments):
        return
    state.require_initialized("SMPTrainer")
    _refuse(args)
    _settle_precision(args)
    if torch.cuda.is_available() and not args.use_cpu:
        torch.cuda.set_device(ranks.local_rank() % torch.cuda.device_count())
    for name in ("_setup_devices", "_n_gpu"):
        args.__dict__.pop(name, None)
    args.distributed_state = None
    # The average multiplies losses by the number of processes, also those that no items divide.
    args.average_tokens_across_devices = False
    if "local_rank" in args.__dict__:
        args.local_rank = -1  # for Transformers 4: else losses are gathered over all ranks
    kind = type(args)
    args.__class__ = type(kind.__name__, (RankArguments, kind), {})


def takes_checkpointing(args: Any) -> bool:
    """True if layers are to be recomputed in backward; from now on that is the library's work."""
    asked = any(bool(getattr(args, name, False)) for name in _CHECKPOINTING)
    for name in _CHECKPOINTING:
        if name in args.__dict__:
            args.__dict__[name] = False
    return asked


def _refuse(args: Any) -> None:
    for name, instead in _REFUSED.items():
        value = getattr(args, name, None)
        if value:
            raise SMPUnsupportedError(
                f"SMPTrainer: TrainingArguments has {name}={value!r}, which does not go with "
                f"model parallelism; {instead}"
            )


def _settle_precision(args: Any) -> None:
    """16-bit state is the library's, autocasting to bfloat16 the Trainer's."""
    cfg = state.cfg
    if cfg.fp16 or cfg.bf16:
        asked = [name for name in ("fp16", "bf16") if getattr(args, name)]
        own = "fp16" if cfg.fp16 else "bf16"
        if asked and asked != [own]:
            log.warning(f"TrainingArguments has {asked[0]}, mp_parameters {own}, which counts")
        args.fp16 = args.bf16 = False
    elif args.fp16:
        raise SMPConfigError(
            "SMPTrainer: TrainingArguments has fp16=True, and mp_parameters has not: 16-bit "
            'training with a loss scale is the library\'s work here; set "fp16": true in '
            "mp_parameters, or bf16=True in TrainingArguments"
        )
    # Transformers 4 tells Accelerate so; there is no scaler of Accelerate's.
    if "ACCELERATE_MIXED_PRECISION" in os.environ and not args.bf16:
        os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
