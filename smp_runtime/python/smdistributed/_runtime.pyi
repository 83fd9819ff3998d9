# SPDX-License-Identifier: Apache-2.0
# ci/signatures writes this of smp_runtime/python/bindings_*.cc.
"""The C++ side of smdistributed; its names may change without notice."""

from __future__ import annotations

import collections.abc
import datetime
import os
import pathlib
import typing

import torch
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d

class ParallelConfig:
    """The effective value of every setting, under every
    documented spelling."""
    def __repr__(self) -> str: ...
    def as_json(self) -> str:
        """The settings as one JSON object."""
    @property
    def _fp32_grad_accumulation(self) -> bool:
        """accumulate the gradients of 16-bit parameters in 32 bits"""
    @_fp32_grad_accumulation.setter
    def _fp32_grad_accumulation(self, arg1: bool) -> None: ...
    @property
    def _match_weights(self) -> bool:
        """distributed modules copy the weights of what they replace"""
    @_match_weights.setter
    def _match_weights(self, arg1: bool) -> None: ...
    @property
    def activation_loading_horizon(self) -> int:
        """how many offloaded activations are fetched ahead of the one in use"""
    @activation_loading_horizon.setter
    def activation_loading_horizon(self, arg1: int) -> None: ...
    @property
    def active_microbatches(self) -> int:
        """microbatches in flight at once"""
    @active_microbatches.setter
    def active_microbatches(self, arg1: int) -> None: ...
    @property
    def auto_partition(self) -> bool:
        """false: modules go where smp.partition and default_partition say"""
    @auto_partition.setter
    def auto_partition(self, arg1: bool) -> None: ...
    @property
    def bf16(self) -> bool:
        """bfloat16 parameters with 32-bit masters; excludes fp16"""
    @bf16.setter
    def bf16(self, arg1: bool) -> None: ...
    @property
    def checkpoint_attentions(self) -> bool:
        """recompute attention inside distributed layers in backward"""
    @checkpoint_attentions.setter
    def checkpoint_attentions(self, arg1: bool) -> None: ...
    @property
    def checkpoint_on_signal(self) -> bool:
        """save into SM_CHECKPOINT_DIR on SIGTERM, and end: smp.checkpoint_on_signal()"""
    @checkpoint_on_signal.setter
    def checkpoint_on_signal(self, arg1: bool) -> None: ...
    @property
    def contiguous(self) -> bool:
        """a TensorFlow setting"""
    @contiguous.setter
    def contiguous(self, arg1: bool) -> None: ...
    @property
    def ddp(self) -> bool:
        """data parallelism over the replicas, and process groups"""
    @ddp.setter
    def ddp(self, arg1: bool) -> None: ...
    @property
    def ddp_dist_backend(self) -> str:
        """backend of the process groups; auto: nccl with CUDA, else gloo; needs ddp"""
    @ddp_dist_backend.setter
    def ddp_dist_backend(self, arg1: str) -> None: ...
    @property
    def ddp_port(self) -> int | None:
        """port of the rendezvous; needs ddp"""
    @ddp_port.setter
    def ddp_port(self, arg1: int | None) -> None: ...
    @property
    def default_partition(self) -> int:
        """partition of modules without an annotation; below partitions"""
    @default_partition.setter
    def default_partition(self, arg1: int) -> None: ...
    @property
    def delayed_parameter_initialization(self) -> bool:
        """create parameters without storage, initialise them on their owner"""
    @delayed_parameter_initialization.setter
    def delayed_parameter_initialization(self, arg1: bool) -> None: ...
    @property
    def deterministic_server(self) -> bool:
        """serve requests in one fixed order"""
    @deterministic_server.setter
    def deterministic_server(self, arg1: bool) -> None: ...
    @property
    def fast_mode(self) -> bool:
        """send a child's output to the next child directly"""
    @fast_mode.setter
    def fast_mode(self, arg1: bool) -> None: ...
    @property
    def fp16(self) -> bool:
        """16-bit parameters with 32-bit masters and loss scaling"""
    @fp16.setter
    def fp16(self, arg1: bool) -> None: ...
    @property
    def fp16_params(self) -> bool:
        """initialise distributed modules in 16 bits"""
    @fp16_params.setter
    def fp16_params(self, arg1: bool) -> None: ...
    @property
    def herring(self) -> bool:
        """old name of SMDDP: not offered, use ddp_dist_backend"""
    @herring.setter
    def herring(self, arg1: bool) -> None: ...
    @property
    def horovod(self) -> bool:
        """not offered with PyTorch: use ddp"""
    @horovod.setter
    def horovod(self, arg1: bool) -> None: ...
    @property
    def hybrid_shard_degree(self) -> int:
        """ranks over which parameters are sharded; divides the replicas; needs ddp"""
    @hybrid_shard_degree.setter
    def hybrid_shard_degree(self, arg1: int) -> None: ...
    @property
    def load_partition(self) -> bool:
        """take the partition decision from partition_file"""
    @load_partition.setter
    def load_partition(self, arg1: bool) -> None: ...
    @property
    def memory_weight(self) -> float:
        """share of memory, against time, in the partitioner's cost"""
    @memory_weight.setter
    def memory_weight(self, arg1: float) -> None: ...
    @property
    def microbatches(self) -> int:
        """equal parts of the batch given to a step"""
    @microbatches.setter
    def microbatches(self, arg1: int) -> None: ...
    @property
    def offload_activations(self) -> bool:
        """keep checkpointed activations in memory of the CPU"""
    @offload_activations.setter
    def offload_activations(self, arg1: bool) -> None: ...
    @property
    def optimize(self) -> str:
        """what tensor parallelism and the partitioner favour"""
    @optimize.setter
    def optimize(self, arg1: str) -> None: ...
    @property
    def overlapping_allreduce(self) -> bool:
        """default of DistributedModel's argument of this name"""
    @overlapping_allreduce.setter
    def overlapping_allreduce(self, arg1: bool) -> None: ...
    @property
    def partition_file(self) -> str | None:
        """file for the partition decision: written, or read with load_partition"""
    @partition_file.setter
    def partition_file(self, arg1: str | None) -> None: ...
    @property
    def partitions(self) -> int:
        """pipeline stages; partitions x tensor_parallel_degree divides the world size"""
    @partitions.setter
    def partitions(self, arg1: int) -> None: ...
    @property
    def pipeline(self) -> str:
        """interleaved: forwards and backwards in turn; simple: all forwards, then all backwards; _only_forward: steps have no backward; zero_bubble: interleaved, with gradients of parameters computed when a rank would wait"""
    @pipeline.setter
    def pipeline(self, arg1: str) -> None: ...
    @property
    def pipeline_memory(self) -> float:
        """with zero_bubble: activations that a rank may keep, as a multiple of 1F1B's, which are its own of as many microbatches as there are partitions"""
    @pipeline_memory.setter
    def pipeline_memory(self, arg1: float) -> None: ...
    @property
    def pipeline_parallel_degree(self) -> int:
        """pipeline stages; partitions x tensor_parallel_degree divides the world size"""
    @pipeline_parallel_degree.setter
    def pipeline_parallel_degree(self, arg1: int) -> None: ...
    @property
    def placement_strategy(self) -> str:
        """order of the axes, the right-most varies fastest: cluster is DPT, spread TPD"""
    @placement_strategy.setter
    def placement_strategy(self, arg1: str) -> None: ...
    @property
    def predefined_hooks(self) -> bool:
        """register the built-in tensor-parallel hooks"""
    @predefined_hooks.setter
    def predefined_hooks(self, arg1: bool) -> None: ...
    @property
    def prescaled_batch(self) -> bool:
        """all ranks of a tensor-parallel group feed the same batch"""
    @prescaled_batch.setter
    def prescaled_batch(self, arg1: bool) -> None: ...
    @property
    def sdp_gradient_clipping(self) -> float:
        """norm to which sharded gradients are clipped"""
    @sdp_gradient_clipping.setter
    def sdp_gradient_clipping(self, arg1: float) -> None: ...
    @property
    def sdp_hierarchical_allgather(self) -> bool:
        """gather inside each host first"""
    @sdp_hierarchical_allgather.setter
    def sdp_hierarchical_allgather(self, arg1: bool) -> None: ...
    @property
    def sdp_max_live_parameters(self) -> int:
        """gathered elements at once"""
    @sdp_max_live_parameters.setter
    def sdp_max_live_parameters(self, arg1: int) -> None: ...
    @property
    def sdp_param_persistence_threshold(self) -> int:
        """tensors with fewer elements are replicated"""
    @sdp_param_persistence_threshold.setter
    def sdp_param_persistence_threshold(self, arg1: int) -> None: ...
    @property
    def sdp_reduce_bucket_size(self) -> int:
        """elements per gradient bucket"""
    @sdp_reduce_bucket_size.setter
    def sdp_reduce_bucket_size(self, arg1: int) -> None: ...
    @property
    def shard_optimizer_state(self) -> bool:
        """split the optimizer's state over the replicas"""
    @shard_optimizer_state.setter
    def shard_optimizer_state(self, arg1: bool) -> None: ...
    @property
    def sharded_data_parallel_degree(self) -> int:
        """ranks over which parameters are sharded; divides the replicas; needs ddp"""
    @sharded_data_parallel_degree.setter
    def sharded_data_parallel_degree(self, arg1: int) -> None: ...
    @property
    def skip_tracing(self) -> bool:
        """partition without a traced forward"""
    @skip_tracing.setter
    def skip_tracing(self, arg1: bool) -> None: ...
    @property
    def static_mode(self) -> bool:
        """skip the exchange of message metadata"""
    @static_mode.setter
    def static_mode(self, arg1: bool) -> None: ...
    @property
    def tensor_parallel_degree(self) -> int:
        """ranks over which a distributed layer is split; above 1 needs ddp"""
    @tensor_parallel_degree.setter
    def tensor_parallel_degree(self, arg1: int) -> None: ...
    @property
    def tensor_parallel_seed(self) -> int:
        """seed of the initial values of distributed parameters"""
    @tensor_parallel_seed.setter
    def tensor_parallel_seed(self, arg1: int) -> None: ...
    @property
    def trace_device(self) -> str:
        """default of DistributedModel's argument of this name"""
    @trace_device.setter
    def trace_device(self, arg1: str) -> None: ...

class V2Config:
    """The effective value of every setting of SMP v2."""
    def __repr__(self) -> str: ...
    def as_json(self) -> str:
        """The settings as one JSON object."""
    def shard_degree(self, world_size: int) -> int | None:
        """Ranks over which FSDP shards one copy of the model, or what tensor parallelism
        leaves of it; None where the script's own strategy says it."""
    @property
    def activation_loading_horizon(self) -> int:
        """inputs of checkpointed layers that are on the device at once, the one in use among them"""
    @property
    def allow_empty_shards(self) -> bool:
        """accepted; ranks may have no piece of a tensor in any case"""
    @property
    def context_parallel_degree(self) -> int:
        """ranks over which a sequence is split: above 1 not offered"""
    @property
    def expert_parallel_degree(self) -> int:
        """ranks over which experts are spread: above 1 not offered"""
    @property
    def fsdp_cache_flush_warnings(self) -> bool:
        """warn when the allocator of the GPU has flushed its cache in a step"""
    @property
    def hybrid_shard_degree(self) -> int:
        """ranks over which one copy of the model is sharded; 0: as the script's strategy says, or all with tensor parallelism; 1: not at all"""
    @property
    def random_seed(self) -> int:
        """of what delayed split models begin with; plus the tensor rank, of what get_rng_state_tracker().fork() draws"""
    @property
    def sm_activation_offloading(self) -> bool:
        """offload_wrapper moves the inputs of checkpointed layers to the host until their backwards; false: it is PyTorch's own"""
    @property
    def tensor_parallel_degree(self) -> int:
        """neighbouring ranks over which transform splits layers; its product with hybrid_shard_degree divides the number of ranks"""
    @property
    def warnings(self) -> list[str]:
        """Lines to be logged once per job."""

class Ranker:
    """Ranks in blocks, each of which holds one copy of the model.

    Ranks of a tensor-parallel group are neighbours. Those of a block with the
    same tensor rank shard what it holds; blocks follow each other, and are
    replicas."""
    def __init__(self, world_size: int, shard_degree: int = 1, tensor_degree: int = 1) -> None:
        """Raises SMPConfigError unless the product of the degrees divides the ranks."""
    def blocks(self) -> list[list[int]]:
        """Ranks of each replica."""
    def get_rep_groups(self) -> list[list[int]]:
        """Ranks that hold the same shard, for each shard; the same list on all ranks."""
    def get_rep_rank(self, rank: int) -> int:
        """Number of the replica that ``rank`` is in; the ranks with 0 write checkpoints."""
    def shard_groups(self) -> list[list[int]]:
        """Ranks over which FSDP shards."""
    def tensor_groups(self) -> list[list[int]]:
        """Ranks that compute a layer together."""
    @property
    def block_size(self) -> int: ...
    @property
    def shard_degree(self) -> int: ...
    @property
    def tensor_degree(self) -> int: ...
    @property
    def world_size(self) -> int: ...

class LaunchRanks:
    """Which rank of the job a process is; ``local_rank`` and ``local_size`` are None where the
    launcher does not tell them, and numbers in a session."""
    @property
    def local_rank(self) -> int | None: ...
    @property
    def local_size(self) -> int | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

class RuntimeOptions:
    """What a user may set by environment; cluster/runtime_options.h."""
    @property
    def checkpoint_memory(self) -> int: ...
    @property
    def cuda_on_cpu(self) -> bool: ...
    @property
    def deepspeed_names(self) -> bool: ...
    @property
    def direct_exchange(self) -> bool: ...
    @property
    def exchanges_are_set(self) -> bool: ...
    @property
    def exchanges_under_way(self) -> int: ...
    @property
    def log_level(self) -> int: ...
    @property
    def parameters(self) -> str: ...
    @property
    def partitioner(self) -> str: ...
    @property
    def progress(self) -> bool: ...
    @property
    def saves_under_way(self) -> int: ...
    @property
    def self_checked_steps(self) -> int: ...
    @property
    def timeout(self) -> datetime.timedelta: ...
    @property
    def warnings(self) -> list[str]: ...

class GroupRequest:
    """What a c10d group is to be."""
    @property
    def backend(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def timeout(self) -> datetime.timedelta: ...

class Groups:
    """The groups of one rank, by the names of kinds: WORLD, MP, DP, PP, TP, RDP. Groups are made
    on first use, which is collective over their ranks."""
    def cpu_group(self, kind: str) -> torch.distributed.distributed_c10d.ProcessGroup:
        """For objects and flags."""
    def index(self, kind: str) -> int:
        """Of this rank in its group."""
    def internal_group(self, kind: str) -> torch.distributed.distributed_c10d.ProcessGroup:
        """For the model's tensors, on its device."""
    def ranks(self, kind: str) -> list[int]:
        """Of the job, ascending."""
    def user_group(self, kind: str) -> torch.distributed.distributed_c10d.ProcessGroup:
        """The one that scripts get; the library puts nothing on it."""

class DeadlockDetector:
    """Tells ranks that wait for each other in different calls;
    session/deadlock/deadlock_detector.h."""

class WaitingBlock:
    """What StoreBarriers.waiting returns."""
    def __enter__(self) -> None: ...
    def __exit__(self, kind: typing.Any, error: typing.Any, trace: typing.Any) -> None: ...

class StoreBarriers:
    """Waits for other ranks over the job's store; session/store_barriers.h."""

    timeout: datetime.timedelta
    def all(
        self, what: str, label: str, ranks: collections.abc.Sequence[int], advice: str = ""
    ) -> None:
        """Returns when all ``ranks``, this one among them, have called it under this ``label``.
        Raises SMPCommTimeoutError that begins with ``what`` and names the absent ranks."""
    def waiting(self, what: str, label: str, needs: collections.abc.Sequence[int]) -> WaitingBlock:
        """Around a call that does not end before all ranks in ``needs`` make it, too, under the
        same ``label``. Waits inside raise SMPMismatchError where ranks are in calls that wait
        for each other, and so do later calls."""
    @property
    def watch(self) -> DeadlockDetector | None:
        """For other waits to ask; may be None."""

class ObjectExchange:
    """Bytes between ranks; blocking. Ranks are those of the job."""
    def all_gather(self, what: str, kind: str, data: bytes) -> list[bytes]:
        """By rank in the group. Collective over it."""
    def all_gather_among(
        self, what: str, label: str, ranks: collections.abc.Sequence[int], data: bytes
    ) -> list[bytes]:
        """The same among some ranks of the job."""
    def broadcast(self, what: str, kind: str, data: bytes) -> None:
        """To all others of this rank's group, who receive. Blocks until they have it."""
    def receive(self, what: str, kind: str, source: int) -> bytes:
        """What another rank sent or broadcast."""
    def send(self, what: str, kind: str, data: bytes, destination: int) -> None:
        """Blocks until the destination has it; to this rank itself it is kept."""
    def take_own(self, kind: str) -> bytes | None:
        """What this rank sent to itself, the oldest first; None if there is nothing."""

class Recorder:
    """Recorder of this rank's activities; record/recorder.h."""

class Session:
    """One process's part in a job; session/session.h. Collective to make.

    Args:
        store: that of a c10d world that is there; else one is opened.
        world: rank and size in that world."""
    def __init__(
        self,
        *,
        config: ParallelConfig,
        options: RuntimeOptions,
        variables: collections.abc.Mapping[str, str],
        number: int,
        store: torch.distributed.distributed_c10d.Store | None,
        world: tuple[int, int] | None,
        find_mpi: collections.abc.Callable[
            [LaunchRanks],
            collections.abc.Callable[[tuple[str, int, str] | None], tuple[str, int, str]] | None,
        ],
        script_line: collections.abc.Callable[[], str],
    ) -> None: ...
    def all_reduce(
        self,
        what: str,
        tensor: torch.Tensor,
        group: torch.distributed.distributed_c10d.ProcessGroup,
        operation: torch._C._distributed_c10d.ReduceOp.RedOpType,
    ) -> None:
        """In place. ``what`` begins its errors, which name absent ranks."""
    def leave(self, failed: bool, serves: bool) -> None:
        """``failed``: waits for nobody. ``serves``: rank 0 serves the store, and goes last."""
    def open_groups(
        self,
        tensors: str,
        cpu: str,
        by_host: str,
        make: collections.abc.Callable[
            [GroupRequest], torch.distributed.distributed_c10d.ProcessGroup
        ],
    ) -> None:
        """Lets groups be made, by ``make``, of these backends. Collective."""
    def some_rank_ended_well(self) -> bool:
        """Whether some rank has left without having failed."""
    @property
    def barriers(self) -> StoreBarriers: ...
    @property
    def config(self) -> ParallelConfig: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def objects(self) -> ObjectExchange: ...
    @property
    def options(self) -> RuntimeOptions: ...
    @property
    def ranks(self) -> LaunchRanks: ...
    @property
    def recorder(self) -> Recorder | None:
        """None where the environment wants no file of it."""
    @property
    def store(self) -> torch.distributed.distributed_c10d.Store:
        """Texts by key, of this session alone."""
    @property
    def world_store(self) -> torch.distributed.distributed_c10d.Store:
        """The same for c10d's world, whose keys are its own."""

class ModuleTree:
    """The modules of a model with their costs, for the partitioner; partition/module_tree.h."""
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_module(
        self,
        name: str,
        *,
        parent: int = -1,
        parameters: collections.abc.Sequence[int] = [],
        activation_bytes: int = 0,
        time_ns: int = 0,
        input_bytes: int = 0,
        output_bytes: int = 0,
        calls: int = 1,
        called: bool = True,
        pin: int | None = None,
        passes_on: bool = False,
        recompute_ns: int = 0,
        recomputed_bytes: int = 0,
    ) -> int: ...
    def add_parameter(self, name: str, bytes: int) -> int: ...
    def add_tensor(
        self, bytes: int, producer: int, consumers: collections.abc.Sequence[int]
    ) -> None: ...

class Assignment:
    """Which module is on which partition; partition/assignment.h."""
    @staticmethod
    def from_json(text: str, where: str) -> Assignment: ...
    def __getitem__(self, module: str) -> int: ...
    def balance_line(self, tree: ModuleTree) -> str: ...
    def check_fits(self, tree: ModuleTree, partitions: int) -> None: ...
    def log_line(self, tree: ModuleTree) -> str: ...
    def to_json(self) -> str: ...
    @property
    def partition_of(self) -> dict[str, int]: ...
    @property
    def partitions(self) -> int: ...

class JobPartition:
    """A decision and who made it; what partition_job chose, and why."""
    def __init__(self, assignment: Assignment, summary: str) -> None: ...
    @property
    def assignment(self) -> Assignment: ...
    @property
    def summary(self) -> str:
        """A line for the log: who decided, and what is expected of it."""
    @property
    def warning(self) -> str:
        """What to warn users of; empty if nothing."""

class EngineUse:
    """How a step used the pipeline; metrics/step_meter.h."""
    @property
    def bytes_sent(self) -> int: ...
    @property
    def messages_sent(self) -> int: ...
    @property
    def pipeline_use(self) -> float | None: ...

class StepReports:
    """What a rank's steps tell: the live line, metrics, the rank's record; does nothing where
    nobody asks for it; metrics/step_reports.h. Collective over the job to make.

    Args:
        session: its groups have been opened.
        device: its name.
        library: the version.
        torch: the version."""
    def __init__(self, session: Session, device: str, library: str, torch: str) -> None: ...
    def averaged(self, loss: torch.Tensor | None, device: torch.device) -> None:
        """After gradients were averaged. Collective over rank 0's data-parallel group; does not
        wait.

        ``loss`` is that of this rank's step; None where it has none, or made no step."""
    def begin_optimizer(self) -> None: ...
    def begin_step(self) -> None: ...
    def close(self) -> None:
        """Tells what is left. Nothing is told or recorded afterwards."""
    def count_flops(self, on_gpu: bool, peak: float | None) -> bool:
        """From now on reports have floating-point operations, of devices that do ``peak`` a
        second. Returns whether anybody asks for them."""
    def end_optimizer(self) -> None: ...
    def end_step(
        self, use: EngineUse, samples: int, loss: torch.Tensor | None, trained: bool
    ) -> None:
        """``samples``: of this rank's batch."""
    def event(self, kind: str, text: str) -> None:
        """Something that the report marks on its time axis, such as a checkpoint."""
    def set_forward_flops(self, flops: int) -> None:
        """Operations of the forward of one microbatch."""
    def set_interval(self, seconds: float) -> None:
        """Between two lines where they stay, and two reports to most outputs; 1 at first."""
    def set_memory(
        self,
        ledger: collections.abc.Callable[[], dict[str, int]],
        formula: collections.abc.Callable[[], int],
    ) -> None:
        """``ledger``: what the model's state takes here. ``formula``: what it would by arithmetic;
        0: no formula. [bytes]"""
    def set_total(self, steps: int) -> None:
        """How many steps there will be, for the remaining time."""
    @property
    def want_loss(self) -> bool:
        """Whether `averaged` and `end_step` have a use for the loss."""

class Engine:
    """Calls to modules of other ranks of a pipeline group; pipeline/engine/engine.h."""
    def __init__(
        self,
        session: Session,
        *,
        cuda_device: int,
        run_module: collections.abc.Callable[
            [int, bytes, list[torch.Tensor], bool],
            tuple[bytes, collections.abc.Sequence[torch.Tensor]],
        ],
        module_names: collections.abc.Sequence[str],
        after_backward_outside: collections.abc.Callable[[], None],
        remote_tensor: collections.abc.Callable[
            [list[int], torch.dtype, torch.device], torch.Tensor
        ],
        memory_in_use: collections.abc.Callable[[], int],
    ) -> None:
        """Collective over the pipeline group. ``cuda_device`` is -1 for the CPU."""
    def backward(
        self,
        tensors: collections.abc.Sequence[torch.Tensor],
        gradients: collections.abc.Sequence[torch.Tensor | None],
        scale: float,
        keep_graph: bool,
    ) -> None:
        """In the body: backpropagates from ``tensors``; a gradient of None is 1, all are
        multiplied by ``scale``."""
    def call(
        self,
        route: collections.abc.Sequence[tuple[int, int]],
        definition: bytes,
        tensors: collections.abc.Sequence[torch.Tensor],
    ) -> tuple[bytes, list[torch.Tensor]]:
        """In a step: calls the modules of ``route``, each an owner and its module, with the
        result of the one before. Blocks this microbatch; differentiable in ``tensors``."""
    def close(self) -> None:
        """Ends the threads and the connections to the other ranks."""
    def complete_gradients(self) -> None:
        """In a step, before gradients of parameters are looked at: computes those that
        ``pipeline: zero_bubble`` has left for later; if there were any, none are from now on."""
    def data_of(self, remote_tensor: torch.Tensor) -> torch.Tensor:
        """What a remote tensor stands for; any other tensor as it is."""
    def drive(
        self,
        kind: str,
        microbatches: int,
        body: collections.abc.Callable[[int], None],
        collect: collections.abc.Callable[[], tuple[bytes, collections.abc.Sequence[torch.Tensor]]],
    ) -> None:
        """Rank 0: runs ``body`` for each microbatch, then ``collect``, whose result all ranks
        get. Blocks until the step is over here."""
    def last_step(self) -> EngineUse: ...
    def serve(self) -> tuple[bytes, list[torch.Tensor]]:
        """Other ranks: serve calls until the step ends; returns what ``collect`` did."""
    def take_backwards(self) -> int:
        """More than 0 if a backward ran here since the last call or the beginning of the step."""
    def track_parameters(self, parameters: collections.abc.Sequence[torch.Tensor]) -> None:
        """Those of this rank: what take_backwards counts, and, in a deterministic order, whose
        gradients are added by microbatch."""
    @property
    def activation_bytes(self) -> int:
        """Of the last step, on this rank."""
    @property
    def microbatch(self) -> int:
        """The one that the calling thread works for; -1 for none."""

class StoredActivation:
    """One tensor in an ActivationStore; forgotten if nobody takes it."""
    def take(self) -> torch.Tensor:
        """The tensor, once. On the CPU blocks until it is back."""

class ActivationStats:
    """Of an ActivationStore. [tensors, bytes]"""
    @property
    def arena_bytes(self) -> int: ...
    @property
    def fast(self) -> int: ...
    @property
    def fast_bytes(self) -> int: ...
    @property
    def highest_fast(self) -> int: ...
    @property
    def put(self) -> int: ...
    @property
    def slow_bytes(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def waits(self) -> int: ...

class ActivationStore:
    """Keeps activations in a slower memory until their backward;
    pipeline/engine/activation_store.h."""
    def __init__(self, horizon: int, bytes_per_second: int = 0, most_fast: int = 0) -> None: ...
    def put(self, tensor: torch.Tensor, microbatch: int) -> StoredActivation | None:
        """None for a tensor that is better kept. Nobody may change it afterwards."""
    def stats(self) -> ActivationStats: ...

class GradientReducer:
    """Averages gradients over the ranks of a group, in buckets, while backwards still run;
    ddp/gradient_reducer.h."""
    def __init__(
        self,
        group_name: str,
        parameters: collections.abc.Sequence[torch.Tensor],
        bucket_bytes: int,
        overlap: bool,
        may_join: bool = True,
        watch: DeadlockDetector | None = None,
        flags_group_name: str = "",
        recorder: Recorder | None = None,
    ) -> None: ...
    def average(self) -> None:
        """Makes each gradient the mean over the group. Blocks, at most for the group's timeout."""
    def begin_step(self, due: bool) -> None:
        """``due``: gradients are averaged at the end of this step."""
    def set_comm_hook(
        self, state: typing.Any, hook: collections.abc.Callable[..., typing.Any]
    ) -> None:
        """It reduces the buckets in place of the all-reduce and its division."""
    @property
    def progress(self) -> tuple[int, int]:
        """Buckets that were on their way before the end of the last step, and all."""

class FileDigest:
    """Name, size and checksum of a file as written."""
    @property
    def bytes(self) -> int: ...
    @property
    def crc32c(self) -> int: ...
    @property
    def name(self) -> str: ...

class AtomicFile:
    """A file that is there whole or not at all; checkpoint/atomic_file.h."""
    def __init__(self, path: str | os.PathLike[str]) -> None: ...
    def commit(self) -> FileDigest:
        """Makes what was written durable, and the file appear."""
    def write(self, data: bytes | memoryview) -> None: ...

class Manifest:
    """Which files belong to a checkpoint, and the degrees of its job;
    checkpoint/manifest.h."""
    @staticmethod
    def read(path: str | os.PathLike[str]) -> Manifest: ...
    def __contains__(self, name: str) -> bool: ...
    def verify(self, path: str | os.PathLike[str]) -> None:
        """Raises SMPCheckpointError where size or checksum are not as written."""
    @property
    def files(self) -> list[FileDigest]: ...
    @property
    def library(self) -> str:
        """The version that wrote it."""
    @property
    def pp(self) -> int: ...
    @property
    def rdp(self) -> int: ...
    @property
    def tag(self) -> str: ...
    @property
    def tp(self) -> int: ...

class CheckpointSave:
    """One save of a checkpoint by all ranks, or none: what is not published leaves nothing
    behind; checkpoint/session/checkpoint_save.h."""
    def __init__(
        self,
        session: Session,
        what: str,
        root: str | os.PathLike[str],
        name: str,
        library: str,
        tidies: bool,
        by_host: bool,
    ) -> None: ...
    def add(self, file: FileDigest) -> None:
        """This rank has written a file into ``folder``."""
    def publish_files(self, manifest: str) -> None:
        """Its files become files of ``root``, with a manifest of that name. Collective."""
    def publish_folder(self, kept: int | None = None) -> None:
        """The folder becomes the checkpoint, in one step, and the oldest ones go beyond ``kept``.
        Collective."""
    def tell(self, error: str) -> None:
        """Tells the others what failed here, empty if nothing, and hears what failed there.
        Blocks until all have told; raises SMPCheckpointError where one failed."""
    @property
    def folder(self) -> pathlib.Path: ...
    @property
    def publishes(self) -> bool:
        """Whether this rank makes the checkpoint visible: one does in each folder, which is one
        in the job where all hosts see the same folder."""

class BackgroundSaves:
    """Saves that a thread of the runtime writes and publishes;
    checkpoint/session/background_saves.h."""
    def __init__(self, session: Session, limit: int) -> None: ...
    def add_files(
        self, save: CheckpointSave, files: collections.abc.Sequence[FileContent], manifest: str
    ) -> None:
        """Writes the files, which become files of the root of ``save``."""
    def add_folder(
        self, save: CheckpointSave, files: collections.abc.Sequence[FileContent], kept: int | None
    ) -> None:
        """Writes the files into the folder of ``save``, which becomes the checkpoint."""
    def add_in_memory(
        self,
        save: CheckpointSave,
        files: collections.abc.Sequence[FileContent],
        memory: MemoryCheckpoints,
    ) -> None:
        """Writes the files into the folder of ``save``, which becomes a checkpoint of ``memory``."""
    def await_room(self) -> None:
        """Blocks until another save may begin. Raises what an earlier one failed with."""
    def close(self) -> None:
        """Gives up what is not published."""
    def wait(self) -> None:
        """Blocks until all are published. Raises what one failed with."""
    @property
    def are_under_way(self) -> bool: ...
    @property
    def memory_bytes(self) -> int:
        """Bytes of all copies, and of those that are kept for the next."""

class FileContent:
    """The content of a file: as it was at one moment, or as it is when it is written;
    checkpoint/state/file_content.h."""
    @staticmethod
    def archive(name: str, pickle: bytes, saves: BackgroundSaves | None = None) -> FileContent:
        """A file of torch.save. Its storages follow: copied where it is for ``saves``, else
        referred to."""
    @staticmethod
    def text(name: str, text: str | bytes) -> FileContent: ...
    def add_storage(self, bytes: torch.Tensor) -> None:
        """The bytes of the storage that the pickle calls by the next number."""
    def write(self, folder: str | os.PathLike[str]) -> FileDigest: ...

class MemoryCheckpoints:
    """Checkpoints in the memory of the job's hosts; checkpoint/session/memory_checkpoints.h."""
    def __init__(self, session: Session, path: str | os.PathLike[str]) -> None: ...
    def fetch(
        self, what: str, folder: str | os.PathLike[str], files: collections.abc.Sequence[str]
    ) -> None:
        """Has ``files`` of that folder here. Collective; raises SMPCheckpointError on all ranks
        where a host has no room."""
    def is_due(self, saves: BackgroundSaves) -> bool:
        """Counts a call; true for those at which a state is to be kept, while none of ``saves``
        is under way. Collective; raises what a save failed with."""
    def newest(self, what: str) -> pathlib.Path | None:
        """The folder here of the newest that the hosts together hold whole, with its manifest.
        Collective."""
    def next_name(self) -> str:
        """The name of the next save."""
    @property
    def root(self) -> pathlib.Path: ...

class OwnedPiece:
    """A stretch of this rank's masters that belongs to one parameter. [elements]"""
    @property
    def arena(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def parameter(self) -> int: ...
    @property
    def start(self) -> int: ...

class ShardPlan:
    """How many ranks share state, and how; sharding/shard_groups.h."""
    def without_cuts(self) -> ShardPlan: ...
    @property
    def cut(self) -> bool: ...
    @property
    def cuts_parameters(self) -> bool: ...
    @property
    def degree(self) -> int: ...
    @property
    def on_demand(self) -> bool: ...
    @property
    def own_degree(self) -> int: ...

class ShardGroups:
    """The c10d groups of this rank among those that hold some parameters alike; None where it
    is alone."""
    @property
    def across_hosts(self) -> torch.distributed.distributed_c10d.ProcessGroup | None:
        """With within_host the two steps of a hierarchical all-gather, where ranks lie evenly
        on several hosts; else None."""
    @property
    def control(self) -> torch.distributed.distributed_c10d.ProcessGroup | None: ...
    @property
    def degree(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def shards(self) -> torch.distributed.distributed_c10d.ProcessGroup | None: ...
    @property
    def within_host(self) -> torch.distributed.distributed_c10d.ProcessGroup | None: ...

class RemoteValues:
    """Makes what stands for parameters of other partitions of the pipeline, as long as it lives."""
    def __init__(self) -> None: ...
    def placeholder(
        self, like: torch.Tensor, sizes: tuple[int, ...], name: str, partition: int
    ) -> torch.Tensor:
        """Of ``sizes``, else as ``like``, without memory: an operator that reads it raises
        SMPStepError by the name."""

class ParameterStore:
    """Parameters, gradients and masters, sharded over a group; its calls are collective and are
    explained in sharding/parameter_store.h."""
    def __init__(
        self,
        *,
        session: Session,
        plan: ShardPlan,
        groups: collections.abc.Sequence[ShardGroups],
        parameters: collections.abc.Sequence[torch.Tensor],
        names: collections.abc.Sequence[str],
        blocks: collections.abc.Sequence[int],
        group_of: collections.abc.Sequence[int],
        block_names: collections.abc.Sequence[str],
        prefetch: bool = True,
    ) -> None: ...
    def accept_writes(self) -> None: ...
    def assign(self, parameter: int, value: torch.Tensor) -> None: ...
    def begin_pass(self, training: bool) -> None: ...
    def begin_step(self, due: bool, backwards: int) -> None: ...
    def end_backward(self) -> None: ...
    def enter(self, units: collections.abc.Sequence[int]) -> None: ...
    def finish_step(self, due: bool) -> None: ...
    def leave(self, outputs: collections.abc.Sequence[torch.Tensor], failed: bool) -> None: ...
    def master_type(self, parameter: int) -> torch.dtype:
        """Type of the master of a parameter, alike on all ranks."""
    def masters(self) -> list[torch.Tensor]: ...
    def pieces(self) -> list[OwnedPiece]: ...
    def prefetched(self) -> dict[str, int]: ...
    def publish(self) -> None: ...
    def set_alike(self, alike: bool) -> None: ...
    def traffic(self) -> dict[str, int]: ...
    def unit_of_parameters(self) -> list[int]: ...
    def units(self) -> list[dict[str, typing.Any]]: ...
    def unreached(self) -> list[int]: ...
    def use(self) -> dict[str, int]: ...
    def whole_unit(
        self, unit: int, arenas: collections.abc.Sequence[torch.Tensor]
    ) -> list[torch.Tensor]: ...
    def zero_gradients(self) -> None: ...
    @property
    def has_gradients(self) -> bool: ...
    @property
    def is_accumulating(self) -> bool: ...
    @property
    def is_published(self) -> bool: ...

class LossScaler:
    """The scale of fp16, by the overflows that it is told;
    sharding/torch_free/loss_scaler.h."""
    def __init__(
        self,
        *,
        dynamic: bool,
        scale: float,
        factor: float = 2.0,
        window: int = 1000,
        least: float = 1.0,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
    ) -> None: ...
    def restore(self, state: tuple[float, int, int]) -> None: ...
    def state(self) -> tuple[float, int, int]: ...
    def update(self, overflow: bool) -> None: ...
    @property
    def dynamic(self) -> bool: ...
    @property
    def scale(self) -> float: ...
    @scale.setter
    def scale(self, arg1: float) -> None: ...

class MasterRun:
    """A stretch of the masters, and the parameter that the optimizer steps for it."""
    def slice_of(self, piece: OwnedPiece, tensor: torch.Tensor) -> torch.Tensor:
        """What of a tensor of as many elements belongs to ``piece``; shares its memory."""
    @property
    def arena(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def parameter(self) -> torch.Tensor: ...
    @property
    def pieces(self) -> list[OwnedPiece]: ...

class MasterParameters:
    """What an optimizer steps where state is sharded or
    16-bit; sharding/master_parameters.h."""
    def __init__(
        self,
        *,
        session: Session,
        store: ParameterStore,
        shapes: collections.abc.Sequence[collections.abc.Sequence[int]],
        group_of: collections.abc.Sequence[int],
        whole: collections.abc.Sequence[bool],
        counts: collections.abc.Sequence[bool],
        groups: int,
        one_parameter_each: bool,
        control: torch.distributed.distributed_c10d.ProcessGroup | None,
        make_leaf: collections.abc.Callable[[torch.Tensor], torch.Tensor],
    ) -> None: ...
    def add(self, parameters: collections.abc.Sequence[int], group: int) -> None:
        """These are in ``group`` from now on: more runs, behind those that are there."""
    def clear_gradients(self) -> None:
        """Zeros in the store for these parameters, and the runs show none."""
    def flat_groups(self) -> list[torch.Tensor]: ...
    def norm(self, norm_type: float) -> float:
        """Of the gradients of these. Collective over a copy of the model."""
    def norms_by_number(self, powers: torch.Tensor, norm_type: float) -> torch.Tensor: ...
    def show_gradients(self, visible: bool) -> None: ...
    @property
    def runs(self) -> list[MasterRun]: ...

class MixedPrecisionSteps:
    """From gradients to updated masters; sharding/mixed_precision_steps.h."""
    def __init__(
        self,
        *,
        session: Session,
        store: ParameterStore,
        scaler: LossScaler,
        scaled: bool,
        clipping: float,
    ) -> None: ...
    def add(self, masters: MasterParameters) -> None:
        """One more optimizer steps over the store."""
    def apply_factor(self) -> None: ...
    def begin(self) -> None: ...
    def begin_accumulation(self) -> None:
        """A step is about to add to gradients that an update has left."""
    def begin_update(self) -> float | None:
        """What gradients are still to be multiplied by; None where no update may follow."""
    def clip(self, max_norm: float, norm_type: float) -> float:
        """Returns the norm over the whole model before clipping; -1 after an overflow."""
    def end_update(self) -> None:
        """The masters were changed: modules see them. Collective over the shard group."""
    def remove(self, masters: MasterParameters) -> None: ...
    def unscale(self) -> None:
        """Gradients become those of the loss itself, once. Where some are not finite,
        ``overflow`` is True on all ranks if ``scaled``; else raises."""
    @property
    def last_norm(self) -> float | None: ...
    @property
    def overflow(self) -> bool: ...

class SavedState:
    """The state of a model and of its optimizer as it was saved, whatever job wrote it; checkpoint/state/saved_state.h."""
    def __init__(self, where: str) -> None: ...
    def add_model(self, entries: typing.Any, tied: collections.abc.Mapping[str, str] = {}) -> None:
        """Takes the entries of a file of a model."""
    def add_optimizer(
        self,
        state: typing.Any,
        names: collections.abc.Sequence[str] = [],
        shapes: collections.abc.Mapping[str, collections.abc.Sequence[int]] = {},
    ) -> None:
        """Reads the state of an optimizer in any form: a part, a list of parts, or a state dict."""
    def complete_with(self, other: SavedState) -> None:
        """Takes from the state of another tensor rank what this lacks."""
    def copy(self) -> SavedState: ...
    def restore_masters(
        self, store: ParameterStore, names: collections.abc.Sequence[str]
    ) -> None: ...
    def state_of_run(
        self, run: MasterRun, names: collections.abc.Sequence[str]
    ) -> dict[str, typing.Any]: ...
    def whole_master(self, name: str) -> torch.Tensor:
        """In the parameter's shape."""
    def whole_masters(self) -> dict[str, torch.Tensor]: ...
    def whole_state(self, name: str) -> dict[str, typing.Any]: ...
    @property
    def common(self) -> dict[str, typing.Any]: ...
    @property
    def entries(self) -> dict[str, typing.Any]:
        """Entries of the model."""
    @property
    def groups(self) -> list[tuple[dict[str, typing.Any], list[str]]]:
        """Settings, and names of parameters."""
    @property
    def has_values_in_shards(self) -> bool: ...
    @property
    def is_of_optimizer(self) -> bool: ...
    @property
    def is_one_of_several(self) -> bool: ...
    @property
    def kept_shapes(self) -> dict[str, dict[str, tuple[int, ...] | None]]:
        """By parameter, shapes of what the optimizer keeps; None for no tensor."""
    @property
    def kind(self) -> str: ...
    @property
    def loss_scale(self) -> tuple[float, int, int] | None: ...
    @property
    def parts(self) -> int: ...
    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of parameters, as far as files say them."""
    @property
    def sharers(self) -> int: ...
    @property
    def tied(self) -> dict[str, str]: ...
    @property
    def types(self) -> dict[str, dict[str, torch.dtype]]:
        """By parameter, types of its master, by that name, and of fields."""
    @property
    def where(self) -> str: ...

class OwnedState:
    """Sharded or 16-bit state of this rank; checkpoint/state/owned_state.h."""
    def __init__(
        self,
        *,
        store: ParameterStore,
        sharers: int,
        shared: bool,
        index: int,
        names: collections.abc.Sequence[str],
        shapes: collections.abc.Sequence[collections.abc.Sequence[int]],
        trained: collections.abc.Sequence[bool],
        masters: collections.abc.Sequence[MasterParameters],
        groups: collections.abc.Sequence[list[dict[str, typing.Any]]],
        members: collections.abc.Sequence[collections.abc.Sequence[collections.abc.Sequence[int]]],
        states: collections.abc.Sequence[list[dict[str, typing.Any]]],
    ) -> None: ...
    def part_for_file(self) -> dict[str, typing.Any]:
        """Collective over the shard group."""
    def part_of_rank(self) -> dict[str, typing.Any]: ...

class Redistribution:
    """How a tensor changes hands between tensor ranks;
    tensor_parallel/torch_free/redistribution.h."""
    @staticmethod
    def all_reduce() -> Redistribution: ...
    @staticmethod
    def exchange(dim: int, join: int) -> Redistribution: ...
    @staticmethod
    def gather(dim: int) -> Redistribution: ...
    @staticmethod
    def reduce_scatter(dim: int) -> Redistribution: ...
    @staticmethod
    def slice(dim: int) -> Redistribution: ...
    @staticmethod
    def stay() -> Redistribution: ...

class RegionMapping:
    """One redistribution forward, another one for the gradient."""
    def __init__(
        self, forward: Redistribution, backward: Redistribution, backward_scale: float = 1.0
    ) -> None: ...

class TensorExchange:
    """One rank's side of its tensor-parallel group; tensor_parallel/tensor_exchange.h."""
    def __init__(
        self,
        group_name: str,
        size: int,
        rank: int,
        under_way: int = -1,
        watch: DeadlockDetector | None = None,
        recorder: Recorder | None = None,
    ) -> None: ...
    def cross(self, mapping: RegionMapping, tensor: torch.Tensor) -> torch.Tensor:
        """The same forward, differentiable: the gradient comes back in the old layout."""
    def layer_norm(
        self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> torch.Tensor:
        """Over a last dim that is sliced."""
    def move(self, redistribution: Redistribution, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor after ``redistribution``, without a history for autograd."""
    def vocabulary_loss(
        self, scores: torch.Tensor, labels: torch.Tensor, ignored: int
    ) -> torch.Tensor:
        """The loss of each row, of scores for a slice of the vocabulary."""
    @property
    def bytes_sent(self) -> int: ...

def adam_step(
    parameters: collections.abc.Sequence[torch.Tensor],
    gradients: collections.abc.Sequence[torch.Tensor],
    first: collections.abc.Sequence[torch.Tensor],
    second: collections.abc.Sequence[torch.Tensor],
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float,
    decoupled: bool,
    scale1: float,
    scale2: float,
    factor: float = 1.0,
) -> None:
    """One update of all parameters in place; optimizer/adam.h."""

def answer_plan(question: str) -> str:
    """The best settings for a model on its machines, or what one takes: JSON of JSON
    (planner/plan_document.h). Raises SMPConfigError."""

def assign_manual(tree: ModuleTree, partitions: int, default_partition: int) -> Assignment:
    """By the modules' pins; the others are with their parents, or on the default partition."""

def bias_gelu(states: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(states + bias), which keeps both and not their sum."""

def broadcast_tensors(
    group_name: str,
    tensors: collections.abc.Sequence[torch.Tensor],
    root: int,
    may_join: bool = True,
    watch: DeadlockDetector | None = None,
) -> None:
    """Overwrites ``tensors`` with those of the group's rank ``root``. Collective."""

def clip_gradients(
    *,
    session: Session,
    what: str,
    slices: collections.abc.Sequence[torch.Tensor],
    whole: collections.abc.Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    device: torch.device,
) -> torch.Tensor:
    """Scales gradients to a norm of at most ``max_norm`` over the whole model. Returns the norm
    before that. Collective over the model-parallel group; sharding/gradient_clipping.h."""

def compositions_as_markdown() -> str:
    """Which features go together, as the documentation's table."""

def digest_of(path: str | os.PathLike[str]) -> FileDigest:
    """Reads the file once."""

def end_together(session: Session, what: str, error: str) -> None:
    """At the end of a part that all ranks end: ``error`` is what failed here, or empty. Raises
    SMPCheckpointError that names the first rank that failed."""

def flatten(
    flat: torch.Tensor,
    offsets: collections.abc.Sequence[int],
    elements: collections.abc.Sequence[int],
    sources: collections.abc.Sequence[torch.Tensor | None],
    added: collections.abc.Sequence[torch.Tensor | None],
) -> None:
    """Fills stretches of ``flat`` with sums of two tensors, None for zeros; sharding/flatten.h."""

def heap_bytes() -> int:
    """Of glibc's heap, allocated and not freed."""

def instance_machines(type: str, hosts: int) -> str:
    """Machines of an instance type of the table, as JSON. Raises SMPConfigError, which
    names near types, for one that is not in it."""

def locate(root: str | os.PathLike[str], name: str, entry: str) -> pathlib.Path:
    """Where ``entry`` of the checkpoint ``name`` is to be read, also where a save was
    killed."""

def make_parallel_config(
    job_text: str, job_where: str, dict_json: str, dict_where: str
) -> ParallelConfig:
    """Of what the job says, as text, and what the script gave to ``smp.init``, which the job's
    wins over. Raises SMPConfigError; for a wrong key or value it begins with the place."""

def make_shard_groups(session: Session, plan: ShardPlan) -> list[ShardGroups]:
    """Collective over the data-parallel ranks."""

def make_v2_config(origins: collections.abc.Sequence[tuple[str, str]]) -> V2Config:
    """Of texts of settings, each with the place that it is from, and each before those behind it.
    Raises SMPConfigError, which begins with the place."""

def masked_softmax(
    scores: torch.Tensor, bias: torch.Tensor | None, causal: bool, window: int | None
) -> torch.Tensor:
    """softmax(scores + bias), without later keys if ``causal``, and those ``window``
    before; tensor_parallel/layer_operators.h."""

def native_hybrid_degree(world_size: int) -> int:
    """Degree of ``HYBRID_SHARD`` where no key says one: 8, as documented for hosts with 8
    GPUs; with ranks that 8 does not divide the largest degree below it that does."""

def parameter_names() -> list[str]:
    """Of all settings, aliases included."""

def parameters_as_markdown() -> str:
    """All settings, as the documentation's table."""

def partition_file_text(assignment: Assignment, tree: ModuleTree, summary: str) -> str:
    """What read_partition_file reads."""

def partition_job(
    tree: ModuleTree,
    config: ParallelConfig,
    *,
    partitioner: str,
    elements: int,
    parameter_bytes: int,
    replicas: int,
    on_gpus: bool,
    device_bytes: int,
    recompute_bytes: int,
) -> JobPartition:
    """By the partitioner that ``SMP_PARTITIONER`` names, auto or compat. ``elements`` and
    ``parameter_bytes`` are those of the model's parameters, which ``replicas`` ranks hold
    alike; ``device_bytes`` is the memory of one device, 0 if that is not known, of which one
    recompute at a time needs ``recompute_bytes``."""

def placement_warning(ranker: Ranker, hosts: collections.abc.Sequence[str]) -> str | None:
    """A warning where a tensor-parallel group or a copy of the model spans hosts though each has
    room for it; ``hosts`` by rank."""

def plan_shards(session: Session) -> ShardPlan | None:
    """None where the settings leave a model's state as it is."""

def read_partition_file(text: str, where: str, tree: ModuleTree, partitions: int) -> Assignment:
    """Raises SMPConfigError, which begins with ``where``, for one that does not fit the
    tree."""

def read_partition_summary(text: str, where: str, partitions: int) -> str:
    """The ``summary`` that the file was written with; empty if there is none."""

def refusal_to_wrap(config: ParallelConfig, world_size: int) -> str | None:
    """Why a model cannot be wrapped with these settings on so many ranks, or None."""

def runtime_options(variables: collections.abc.Mapping[str, str]) -> RuntimeOptions:
    """Raises SMPConfigError for a variable that holds what it may not."""

def runtime_variables() -> list[tuple[str, str, str]]:
    """Name, default and meaning of every variable that RuntimeOptions reads."""

def set_fabric_defaults() -> None:
    """Variables of libfabric that have other defaults here, where the environment does not
    set them; transport/fabric/fabric_library.h."""

def settings_differences(here: str, there: str) -> list[str]:
    """A line for each setting that is not the same in two results of ``as_json``."""

def split_points(tree: ModuleTree, stages: int) -> list[str]:
    """Names of the modules with which the stages but the first begin."""

def sum_of_powers(
    tensors: collections.abc.Sequence[torch.Tensor], norm_type: float
) -> torch.Tensor:
    """Of all elements, a 0-dim tensor; the largest absolute value for an infinite norm."""

def sum_of_squares(tensors: collections.abc.Sequence[torch.Tensor]) -> float:
    """Of all elements, in 64 bits."""

def tell_partition(session: Session, decided: JobPartition, tree: ModuleTree) -> None:
    """What goes where in the model, for the log and the report's card: the first rank's
    call."""

def v2_parameters_as_markdown() -> str:
    """All settings of SMP v2, as the documentation's table."""

def validate_v2_world(config: V2Config, world_size: int) -> None:
    """Raises SMPConfigError for degrees that exclude each other, are not offered, or do not
    divide the number of ranks."""

def write_file(path: str | os.PathLike[str], text: str | bytes) -> FileDigest:
    """Writes it as AtomicFile does."""

def write_log(level: int, message: str) -> None:
    """Into the log of this rank; levels are those of :mod:`logging`."""

HAS_CUDA: bool
NEWEST: str
PARTIAL: str
