# SPDX-License-Identifier: Apache-2.0
# The C++ side of the package: smp_runtime/python/bindings_*.cc.
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Store
from typing_extensions import Buffer

# --- bindings_errors.cc

def write_log(level: int, message: str) -> None:
    """Into the log of this rank; levels are those of :mod:`logging`."""

# --- bindings_topology.cc

class ParallelConfig:
    """The effective value of every setting, under every documented spelling.
    tests/python/test_parameters.py makes the fields from
    smp_runtime/topology/parameter_table.cc, with SMP_UPDATE_GOLDEN=1."""

    def as_json(self) -> str:
        """The settings as one JSON object."""
    partitions: int
    """pipeline stages; partitions x tensor_parallel_degree divides the world size"""
    pipeline_parallel_degree: int
    """pipeline stages; partitions x tensor_parallel_degree divides the world size"""
    tensor_parallel_degree: int
    """ranks over which a distributed layer is split; above 1 needs ddp"""
    microbatches: int
    """equal parts of the batch given to a step"""
    active_microbatches: int
    """microbatches in flight at once"""
    pipeline: str
    """interleaved: forwards and backwards in turn; simple: all forwards, then all backwards;
    _only_forward: steps have no backward"""
    optimize: str
    """what tensor parallelism and the partitioner favour"""
    memory_weight: float
    """share of memory, against time, in the partitioner's cost"""
    placement_strategy: str
    """order of the axes, the right-most varies fastest: cluster is DPT, spread TPD"""
    auto_partition: bool
    """false: modules go where smp.partition and default_partition say"""
    default_partition: int
    """partition of modules without an annotation; below partitions"""
    partition_file: str | None
    """file for the partition decision: written, or read with load_partition"""
    load_partition: bool
    """take the partition decision from partition_file"""
    trace_device: str
    """default of DistributedModel's argument of this name"""
    skip_tracing: bool
    """partition without a traced forward"""
    deterministic_server: bool
    """serve requests in one fixed order"""
    ddp: bool
    """data parallelism over the replicas, and process groups"""
    ddp_port: int | None
    """port of the rendezvous; needs ddp"""
    ddp_dist_backend: str
    """backend of the process groups; auto: nccl with CUDA, else gloo; needs ddp"""
    overlapping_allreduce: bool
    """default of DistributedModel's argument of this name"""
    horovod: bool
    """not offered with PyTorch: use ddp"""
    herring: bool
    """old name of SMDDP: not offered, use ddp_dist_backend"""
    contiguous: bool
    """a TensorFlow setting"""
    prescaled_batch: bool
    """all ranks of a tensor-parallel group feed the same batch"""
    tensor_parallel_seed: int
    """seed of the initial values of distributed parameters"""
    predefined_hooks: bool
    """register the built-in tensor-parallel hooks"""
    _match_weights: bool
    """distributed modules copy the weights of what they replace"""
    checkpoint_attentions: bool
    """recompute attention inside distributed layers in backward"""
    offload_activations: bool
    """keep checkpointed activations in memory of the CPU"""
    activation_loading_horizon: int
    """how many offloaded activations are fetched ahead of the one in use"""
    shard_optimizer_state: bool
    """split the optimizer's state over the replicas"""
    fp16: bool
    """16-bit parameters with 32-bit masters and loss scaling"""
    bf16: bool
    """bfloat16 parameters with 32-bit masters; excludes fp16"""
    fp16_params: bool
    """initialise distributed modules in 16 bits"""
    _fp32_grad_accumulation: bool
    """accumulate the gradients of 16-bit parameters in 32 bits"""
    delayed_parameter_initialization: bool
    """create parameters without storage, initialise them on their owner"""
    sharded_data_parallel_degree: int
    """ranks over which parameters are sharded; divides the replicas; needs ddp"""
    hybrid_shard_degree: int
    """ranks over which parameters are sharded; divides the replicas; needs ddp"""
    sdp_reduce_bucket_size: int
    """elements per gradient bucket"""
    sdp_param_persistence_threshold: int
    """tensors with fewer elements are replicated"""
    sdp_max_live_parameters: int
    """gathered elements at once"""
    sdp_hierarchical_allgather: bool
    """gather inside each host first"""
    sdp_gradient_clipping: float
    """norm to which sharded gradients are clipped"""
    static_mode: bool
    """skip the exchange of message metadata"""
    fast_mode: bool
    """send a child's output to the next child directly"""

def make_parallel_config(
    job_text: str, job_where: str, dict_json: str, dict_where: str
) -> ParallelConfig:
    """Of what the job says, as text, and what the script gave to ``smp.init``, which the job's wins
    over. Raises SMPConfigError; for a wrong key or value it begins with the place."""

def refusal_to_wrap(config: ParallelConfig, world_size: int) -> str | None:
    """Why a model cannot be wrapped with these settings on so many ranks, or None."""

def compositions_as_markdown() -> str:
    """Which features go together, as the documentation's table."""

def parameters_as_markdown() -> str:
    """All settings, as the documentation's table."""

def parameter_names() -> list[str]:
    """Of all settings, aliases included."""

def parameter_fields() -> list[tuple[str, str, str]]:
    """Name, Python's type and meaning of every setting, aliases included."""

# --- bindings_session.cc

class LaunchRanks:
    """Which rank of the job a process is; ``local_rank`` and ``local_size`` are None where the
    launcher does not tell them, and numbers in a session."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int | None: ...
    @property
    def local_size(self) -> int | None: ...

class RuntimeOptions:
    """What a user may set by environment; cluster/runtime_options.h."""

    @property
    def parameters(self) -> str: ...
    @property
    def log_level(self) -> int: ...
    @property
    def timeout(self) -> timedelta: ...
    @property
    def progress(self) -> bool: ...
    @property
    def self_checked_steps(self) -> int: ...
    @property
    def partitioner(self) -> str: ...
    @property
    def direct_exchange(self) -> bool: ...
    @property
    def exchanges_under_way(self) -> int: ...
    @property
    def exchanges_are_set(self) -> bool: ...
    @property
    def cuda_on_cpu(self) -> bool: ...
    @property
    def deepspeed_names(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...

def runtime_options(variables: Mapping[str, str]) -> RuntimeOptions:
    """Raises SMPConfigError for a variable that holds what it may not."""

def runtime_variables() -> list[tuple[str, str, str]]:
    """Name, default and meaning of every variable that RuntimeOptions reads."""

class GroupRequest:
    """What a c10d group is to be."""

    @property
    def ranks(self) -> list[int]: ...
    @property
    def backend(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def timeout(self) -> timedelta: ...

class Groups:
    """The groups of one rank, by the names of kinds: WORLD, MP, DP, PP, TP, RDP. Groups are made on
    first use, which is collective over their ranks."""

    def ranks(self, kind: str) -> list[int]:
        """Of the job, ascending."""
    def index(self, kind: str) -> int:
        """Of this rank in its group."""
    def user_group(self, kind: str) -> ProcessGroup:
        """The one that scripts get; the library puts nothing on it."""
    def internal_group(self, kind: str) -> ProcessGroup:
        """For the model's tensors, on its device."""
    def cpu_group(self, kind: str) -> ProcessGroup:
        """For objects and flags."""

def set_fabric_defaults() -> None:
    """Variables of libfabric that have other defaults here, where the environment does not set
    them; transport/fabric/fabric_library.h."""

class DeadlockDetector:
    """Tells ranks that wait for each other in different calls; see
    session/deadlock/deadlock_detector.h."""

class WaitingBlock:
    """What StoreBarriers.waiting returns."""

    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

class StoreBarriers:
    """Waits for other ranks over the job's store; session/store_barriers.h."""

    timeout: timedelta
    def all(self, what: str, label: str, ranks: Sequence[int], advice: str = "") -> None:
        """Returns when all ``ranks``, this one among them, have called it under this ``label``.
        Raises SMPCommTimeoutError that begins with ``what`` and names the absent ranks."""

    def waiting(self, what: str, label: str, needs: Sequence[int]) -> WaitingBlock:
        """Around a call that does not end before all ranks in ``needs`` make it, too, under the
        same ``label``. Waits inside raise SMPMismatchError where ranks are in calls that wait for
        each other, and so do later calls."""

    @property
    def watch(self) -> DeadlockDetector | None:
        """For other waits to ask; may be None."""

class ObjectExchange:
    """Bytes between ranks; blocking. Ranks are those of the job."""

    def send(self, what: str, kind: str, data: bytes, destination: int) -> None:
        """Blocks until the destination has it; to this rank itself it is kept."""
    def broadcast(self, what: str, kind: str, data: bytes) -> None:
        """To all others of this rank's group, who receive. Blocks until they have it."""
    def receive(self, what: str, kind: str, source: int) -> bytes:
        """What another rank sent or broadcast."""
    def take_own(self, kind: str) -> bytes | None:
        """What this rank sent to itself, the oldest first; None if there is nothing."""
    def all_gather(self, what: str, kind: str, data: bytes) -> list[bytes]:
        """By rank in the group. Collective over it."""

class Session:
    """One process's part in a job; session/session.h. Collective to make.

    Args:
        store: that of a c10d world that is there; else one is opened.
        world: rank and size in that world.
    """

    def __init__(
        self,
        *,
        config: ParallelConfig,
        options: RuntimeOptions,
        variables: Mapping[str, str],
        number: int,
        store: Store | None,
        world: tuple[int, int] | None,
        find_mpi: Callable[
            [LaunchRanks], Callable[[tuple[str, int] | None], tuple[str, int]] | None
        ],
        script_line: Callable[[], str],
    ) -> None: ...
    def open_groups(
        self, tensors: str, cpu: str, by_host: str, make: Callable[[GroupRequest], ProcessGroup]
    ) -> None:
        """Lets groups be made, by ``make``, of these backends. Collective."""
    def all_reduce(
        self,
        what: str,
        tensor: torch.Tensor,
        group: ProcessGroup,
        operation: Any,  # of dist.ReduceOp
    ) -> None:
        """In place. ``what`` begins its errors, which name absent ranks."""

    def leave(self, failed: bool, serves: bool) -> None:
        """``failed``: waits for nobody. ``serves``: rank 0 serves the store, and goes last."""
    def some_rank_ended_well(self) -> bool:
        """Whether some rank has left without having failed."""
    @property
    def config(self) -> ParallelConfig: ...
    @property
    def options(self) -> RuntimeOptions: ...
    @property
    def ranks(self) -> LaunchRanks: ...
    @property
    def barriers(self) -> StoreBarriers: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def objects(self) -> ObjectExchange: ...
    @property
    def store(self) -> Store:
        """Texts by key, of this session alone."""
    @property
    def world_store(self) -> Store:
        """The same for c10d's world, whose keys are its own."""

# --- bindings_metrics.cc

class EngineUse:
    """How a step used the pipeline; metrics/step_meter.h."""

    @property
    def pipeline_use(self) -> float | None: ...
    @property
    def messages_sent(self) -> int: ...
    @property
    def bytes_sent(self) -> int: ...

class StepReports:
    """What a rank's steps tell: the live line, metrics, the rank's record; does nothing where
    nobody asks for it; metrics/step_reports.h. Collective over the job to make.

    Args:
        session: its groups have been opened.
        device: its name.
        library: the version.
        torch: the version.
    """

    def __init__(self, session: Session, device: str, library: str, torch: str) -> None: ...
    def set_memory(self, ledger: Callable[[], dict[str, int]], formula: Callable[[], int]) -> None:
        """``ledger``: what the model's state takes here. ``formula``: what it would by arithmetic;
        0: no formula. [bytes]"""

    def set_total(self, steps: int) -> None:
        """How many steps there will be, for the remaining time."""
    def set_interval(self, seconds: float) -> None:
        """Between two lines where they stay, and two reports to most outputs; 1 at first."""

    def count_flops(self, on_gpu: bool, peak: float | None) -> bool:
        """From now on reports have floating-point operations, of devices that do ``peak`` a second.
        Returns whether anybody asks for them."""

    def set_forward_flops(self, flops: int) -> None:
        """Operations of the forward of one microbatch."""

    @property
    def want_loss(self) -> bool:
        """Whether `averaged` and `end_step` have a use for the loss."""

    def begin_step(self) -> None: ...
    def averaged(self, loss: torch.Tensor | None, device: torch.device) -> None:
        """After gradients were averaged. Collective over rank 0's data-parallel group; does not
        wait.

        ``loss`` is that of this rank's step; None where it has none, or made no step.
        """

    def end_step(
        self, use: EngineUse, samples: int, loss: torch.Tensor | None, trained: bool
    ) -> None:
        """``samples``: of this rank's batch."""

    def begin_optimizer(self) -> None: ...
    def end_optimizer(self) -> None: ...
    def event(self, kind: str, text: str) -> None:
        """Something that the report marks on its time axis, such as a checkpoint."""

    def close(self) -> None:
        """Tells what is left. Nothing is told or recorded afterwards."""

def tell_partition(
    session: Session, assignment: Assignment, tree: ModuleTree, summary: str
) -> None:
    """What goes where in the model, for the log and the report's card: the first rank's call."""

def heap_bytes() -> int:
    """Of glibc's heap, allocated and not freed."""

# --- bindings_partition.cc

class ModuleTree:
    """The modules of a model with their costs, for the partitioner; partition/module_tree.h."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_parameter(self, name: str, bytes: int) -> int: ...  # noqa: A002
    def add_module(
        self,
        name: str,
        *,
        parent: int = -1,
        parameters: Sequence[int] = ...,
        activation_bytes: int = 0,
        time_ns: int = 0,
        input_bytes: int = 0,
        output_bytes: int = 0,
        calls: int = 1,
        called: bool = True,
        pin: int | None = None,
        passes_on: bool = False,
    ) -> int: ...
    def add_tensor(
        self,
        bytes: int,  # noqa: A002
        producer: int,
        consumers: Sequence[int],
    ) -> None: ...

class Assignment:
    """Which module is on which partition; partition/assignment.h."""

    @property
    def partitions(self) -> int: ...
    @property
    def partition_of(self) -> dict[str, int]: ...
    def __getitem__(self, module: str) -> int: ...
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str, where: str) -> Assignment: ...
    def check_fits(self, tree: ModuleTree, partitions: int) -> None: ...
    def log_line(self, tree: ModuleTree) -> str: ...
    def balance_line(self, tree: ModuleTree) -> str: ...

def read_partition_file(text: str, where: str, tree: ModuleTree, partitions: int) -> Assignment:
    """Raises SMPConfigError, which begins with ``where``, for one that does not fit the tree."""

def partition_file_text(assignment: Assignment, tree: ModuleTree) -> str:
    """What read_partition_file reads."""

class JobPartition:
    """What partition_job chose, and why."""

    @property
    def assignment(self) -> Assignment: ...
    @property
    def summary(self) -> str:
        """A line for the log: who decided, and what is expected of it."""
    @property
    def warning(self) -> str:
        """What to warn users of; empty if nothing."""

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
    ``parameter_bytes`` are those of the model's parameters, which ``replicas`` ranks hold alike;
    ``device_bytes`` is the memory of one device, 0 if that is not known, of which one recompute at
    a time needs ``recompute_bytes``."""

def assign_manual(tree: ModuleTree, partitions: int, default_partition: int) -> Assignment:
    """By the modules' pins; the others are with their parents, or on the default partition."""

# --- bindings_pipeline.cc

class Engine:
    """Calls to modules of other ranks of a pipeline group; pipeline/engine/engine.h."""

    def __init__(
        self,
        session: Session,
        *,
        cuda_device: int,
        run_module: Callable[..., tuple[bytes, list[torch.Tensor]]],
        module_names: Sequence[str],
        after_backward_outside: Callable[[], None],
        remote_tensor: Callable[..., torch.Tensor],
        memory_in_use: Callable[[], int],
    ) -> None:
        """Collective over the pipeline group. ``cuda_device`` is -1 for the CPU."""
    def close(self) -> None:
        """Ends the threads and the connections to the other ranks."""
    def drive(
        self,
        kind: str,
        microbatches: int,
        body: Callable[[int], None],
        collect: Callable[[], tuple[bytes, list[torch.Tensor]]],
    ) -> None:
        """Rank 0: runs ``body`` for each microbatch, then ``collect``, whose result all ranks get.
        Blocks until the step is over here."""
    def serve(self) -> tuple[bytes, list[torch.Tensor]]:
        """Other ranks: serve calls until the step ends; returns what ``collect`` did."""
    def call(
        self, route: Sequence[tuple[int, int]], definition: bytes, tensors: list[torch.Tensor]
    ) -> tuple[bytes, list[torch.Tensor]]:
        """In a step: calls the modules of ``route``, each with the result of the one before.
        Blocks this microbatch; differentiable in ``tensors``."""
    def data_of(self, remote_tensor: torch.Tensor) -> torch.Tensor:
        """What a remote tensor stands for; any other tensor as it is."""
    def backward(
        self,
        tensors: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        scale: float,
        keep_graph: bool,
    ) -> None:
        """In the body: backpropagates from ``tensors``; a gradient of None is 1, all
        are multiplied by ``scale``."""
    def track_parameters(self, parameters: Sequence[torch.Tensor]) -> None:
        """Those of this rank: what take_backwards counts, and, in a deterministic order, whose
        gradients are added by microbatch."""
    def take_backwards(self) -> int:
        """More than 0 if a backward ran here since the last call or the beginning of the step."""
    def last_step(self) -> EngineUse: ...
    @property
    def activation_bytes(self) -> int:
        """Of the last step, on this rank."""
    @property
    def microbatch(self) -> int:
        """The one that the calling thread works for; -1 for none."""

class StoredActivation:
    """One tensor in an ActivationStore."""

    def take(self) -> torch.Tensor:
        """The tensor, once. On the CPU blocks until it is back."""

class ActivationStats:
    """Of an ActivationStore. [tensors, bytes]"""

    @property
    def put(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def waits(self) -> int: ...
    @property
    def fast_bytes(self) -> int: ...
    @property
    def slow_bytes(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...

class ActivationStore:
    """Keeps activations in a slower memory until their backward;
    pipeline/engine/activation_store.h."""

    def __init__(self, horizon: int, bytes_per_second: int = 0) -> None: ...
    def put(self, tensor: torch.Tensor, microbatch: int) -> StoredActivation | None:
        """None for a tensor that is better kept. Nobody may change it afterwards."""
    def stats(self) -> ActivationStats: ...

# --- bindings_ddp.cc

class GradientReducer:
    """Averages gradients over the ranks of a group, in buckets, while backwards still run;
    ddp/gradient_reducer.h."""

    def __init__(
        self,
        group_name: str,
        parameters: Sequence[torch.Tensor],
        bucket_bytes: int,
        overlap: bool,
        may_join: bool = True,
        watch: DeadlockDetector | None = None,
        flags_group_name: str = "",
    ) -> None: ...
    def set_comm_hook(self, state: Any, hook: Callable[..., Any]) -> None:
        """It reduces the buckets in place of the all-reduce and its division."""
    def begin_step(self, due: bool) -> None:
        """``due``: gradients are averaged at the end of this step."""
    def average(self) -> None:
        """Makes each gradient the mean over the group. Blocks, at most for the group's timeout."""
    @property
    def progress(self) -> tuple[int, int]:
        """Buckets that were on their way before the end of the last step, and all."""

def broadcast_tensors(
    group_name: str,
    tensors: Sequence[torch.Tensor],
    root: int,
    may_join: bool = True,
    watch: DeadlockDetector | None = None,
) -> None:
    """Overwrites ``tensors`` with those of the group's rank ``root``. Collective."""

# --- bindings_checkpoint.cc

PARTIAL: str
"""What the name of a checkpoint in parts ends with."""
NEWEST: str
"""The file that names the newest checkpoint of its folder."""

class FileDigest:
    """Name, size and checksum of a file as written."""

    @property
    def name(self) -> str: ...

class AtomicFile:
    """A file that is there whole or not at all; checkpoint/atomic_file.h."""

    def __init__(self, path: str | PathLike[str]) -> None: ...
    def write(self, data: Buffer) -> None: ...
    def commit(self) -> FileDigest:
        """Makes what was written durable, and the file appear."""

class Manifest:
    """Which files belong to a checkpoint, and the degrees of its job; checkpoint/manifest.h."""

    @property
    def pp(self) -> int: ...
    @property
    def tp(self) -> int: ...
    @staticmethod
    def read(path: str | PathLike[str]) -> Manifest: ...
    def __contains__(self, name: str) -> bool: ...
    def verify(self, path: str | PathLike[str]) -> None:
        """Raises SMPCheckpointError where size or checksum are not as written."""

def write_file(path: str | PathLike[str], text: str) -> FileDigest:
    """Writes a text as AtomicFile does."""

def end_together(session: Session, what: str, error: str) -> None:
    """At the end of a part that all ranks end: ``error`` is what failed here, or empty. Raises
    SMPCheckpointError that names the first rank that failed."""

class CheckpointSave:
    """One save of a checkpoint by all ranks, or none: what is not published leaves nothing behind;
    checkpoint/session/checkpoint_save.h."""

    def __init__(
        self,
        session: Session,
        what: str,
        root: str | PathLike[str],
        name: str,
        library: str,
    ) -> None: ...
    @property
    def folder(self) -> Path: ...
    @property
    def publishes(self) -> bool:
        """Whether this rank makes the checkpoint visible: one does in each folder, which is one in
        the job where all hosts see the same folder."""

    def add(self, file: FileDigest) -> None:
        """This rank has written a file into ``folder``."""
    def tell(self, error: str) -> None:
        """Tells the others what failed here, "" if nothing, and hears what failed there. Blocks
        until all have told; raises SMPCheckpointError where one failed."""
    def publish_folder(self) -> None:
        """The folder becomes the checkpoint, in one step. Collective."""
    def publish_files(self, manifest: str) -> None:
        """Its files become files of ``root``, with a manifest of that name. Collective."""

def locate(root: str | PathLike[str], name: str, entry: str) -> Path:
    """Where ``entry`` of the checkpoint ``name`` is to be read, also where a save was killed."""

def prune_folders(root: str | PathLike[str], keep: str, count: int) -> list[str]:
    """Removes all checkpoints in parts but ``keep`` and the newest others, so that ``count``
    remain. Returns the names of those removed."""

# --- bindings_optimizer.cc

HAS_CUDA: bool

def adam_step(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
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

def sum_of_powers(tensors: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """Of all elements, a 0-dim tensor; the largest absolute value for an infinite norm."""

def sum_of_squares(tensors: Sequence[torch.Tensor]) -> float:
    """Of all elements, in 64 bits."""

# --- bindings_sharding.cc

def flatten(
    flat: torch.Tensor,
    offsets: Sequence[int],
    elements: Sequence[int],
    sources: Sequence[torch.Tensor | None],
    added: Sequence[torch.Tensor | None],
) -> None:
    """Fills stretches of ``flat`` with sums of two tensors, None for zeros; sharding/flatten.h."""

class OwnedPiece:
    """A stretch of this rank's masters that belongs to one parameter. [elements]"""

    @property
    def parameter(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def arena(self) -> int: ...
    @property
    def offset(self) -> int: ...

class ShardPlan:
    """How many ranks share state, and how; sharding/shard_groups.h."""

    @property
    def degree(self) -> int: ...
    @property
    def own_degree(self) -> int: ...
    @property
    def on_demand(self) -> bool: ...
    @property
    def cut(self) -> bool: ...
    @property
    def cuts_parameters(self) -> bool: ...
    def without_cuts(self) -> ShardPlan: ...

def plan_shards(session: Session) -> ShardPlan | None:
    """None where the settings leave a model's state as it is."""

class ShardGroups:
    """The c10d groups of this rank among those that hold some parameters alike; None where it is
    alone."""

    @property
    def degree(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def shards(self) -> ProcessGroup | None: ...
    @property
    def control(self) -> ProcessGroup | None: ...
    @property
    def across_hosts(self) -> ProcessGroup | None:
        """With within_host the two steps of a hierarchical all-gather, where ranks lie evenly
        on several hosts; else None."""
    @property
    def within_host(self) -> ProcessGroup | None: ...

def make_shard_groups(session: Session, plan: ShardPlan) -> list[ShardGroups]:
    """Collective over the data-parallel ranks."""

class RemoteValues:
    """Makes what stands for parameters of other partitions of the pipeline, as long as it lives."""

    def __init__(self) -> None: ...
    def placeholder(
        self, like: torch.Tensor, sizes: Sequence[int], name: str, partition: int
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
        groups: Sequence[ShardGroups],
        parameters: Sequence[torch.Tensor],
        names: Sequence[str],
        blocks: Sequence[int],
        group_of: Sequence[int],
        block_names: Sequence[str],
        prefetch: bool = True,
    ) -> None: ...
    def units(self) -> list[dict[str, Any]]: ...
    def unit_of_parameters(self) -> list[int]: ...
    def begin_pass(self, training: bool) -> None: ...
    def begin_step(self, due: bool, backwards: int) -> None: ...
    def set_alike(self, alike: bool) -> None: ...
    def enter(self, units: Sequence[int]) -> None: ...
    def leave(self, outputs: Sequence[torch.Tensor], failed: bool) -> None: ...
    def end_backward(self) -> None: ...
    def finish_step(self, due: bool) -> None: ...
    @property
    def has_gradients(self) -> bool: ...
    @property
    def is_accumulating(self) -> bool: ...
    def unreached(self) -> list[int]: ...
    @property
    def is_published(self) -> bool: ...
    def masters(self) -> list[torch.Tensor]: ...
    def pieces(self) -> list[OwnedPiece]: ...
    def zero_gradients(self) -> None: ...
    def publish(self) -> None: ...
    def accept_writes(self) -> None: ...
    def whole_unit(self, unit: int) -> list[torch.Tensor]: ...
    def assign(self, parameter: int, value: torch.Tensor) -> None: ...
    def use(self) -> dict[str, int]: ...
    def traffic(self) -> dict[str, int]: ...
    def prefetched(self) -> dict[str, int]: ...

# --- bindings_saved_state.cc

class SavedState:
    """The state of a model and of its optimizer as it was saved, whatever job wrote it;
    checkpoint/state/saved_state.h. Raises SMPCheckpointError."""

    def __init__(self, where: str) -> None: ...
    def add_model(self, entries: Mapping[str, Any], tied: Mapping[str, str] = ...) -> None:
        """A file of a model's entries."""
    def add_optimizer(
        self,
        state: Mapping[str, Any],
        names: Sequence[str] = ...,
        shapes: Mapping[str, Sequence[int]] = ...,
    ) -> None:
        """The state of an optimizer in any form: a part, a list of parts, or a state dict."""
    def copy(self) -> SavedState: ...
    def complete_with(self, other: SavedState) -> None:
        """Takes from the state of another tensor rank what this lacks."""
    @property
    def where(self) -> str: ...
    @property
    def entries(self) -> dict[str, Any]:
        """Of the model."""
    @property
    def has_values_in_shards(self) -> bool: ...
    @property
    def tied(self) -> dict[str, str]: ...
    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of parameters, as far as files say them."""
    @property
    def kept_shapes(self) -> dict[str, dict[str, tuple[int, ...] | None]]:
        """By parameter, the shapes of what the optimizer keeps; None for what is no tensor."""
    @property
    def common(self) -> dict[str, Any]: ...
    @property
    def groups(self) -> list[tuple[dict[str, Any], list[str]]]:
        """Settings, and names of parameters."""
    @property
    def kind(self) -> str: ...
    @property
    def loss_scale(self) -> tuple[float, int, int] | None: ...
    @property
    def parts(self) -> int: ...
    @property
    def sharers(self) -> int: ...
    @property
    def is_one_of_several(self) -> bool: ...
    @property
    def is_of_optimizer(self) -> bool: ...
    def whole_masters(self) -> dict[str, torch.Tensor]: ...
    def whole_state(self, name: str) -> dict[str, Any]: ...
    def state_of_run(self, run: MasterRun, names: Sequence[str]) -> dict[str, Any]: ...
    def restore_masters(self, store: ParameterStore, names: Sequence[str]) -> None: ...

class OwnedState:
    """Sharded or 16-bit state of this rank; checkpoint/state/part_writer.h."""

    def __init__(
        self,
        *,
        store: ParameterStore,
        sharers: int,
        shared: bool,
        index: int,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        trained: Sequence[bool],
        masters: Sequence[MasterParameters],
        groups: Sequence[Sequence[Mapping[str, Any]]],
        members: Sequence[Sequence[Sequence[int]]],
        states: Sequence[Sequence[Mapping[str, Any]]],
    ) -> None: ...
    def part_of_rank(self) -> dict[str, Any]: ...
    def part_for_file(self) -> dict[str, Any]:
        """Collective over the shard group."""

# --- bindings_masters.cc

class LossScaler:
    """The scale of fp16, by the overflows that it is told; sharding/torch_free/loss_scaler.h."""

    scale: float
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
    @property
    def dynamic(self) -> bool: ...
    def update(self, overflow: bool) -> None: ...
    def state(self) -> tuple[float, int, int]: ...
    def restore(self, state: tuple[float, int, int]) -> None: ...

class MasterRun:
    """A stretch of the masters, and the parameter that the optimizer steps for it."""

    @property
    def arena(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def pieces(self) -> list[OwnedPiece]: ...
    @property
    def parameter(self) -> torch.Tensor: ...
    def slice_of(self, piece: OwnedPiece, tensor: torch.Tensor) -> torch.Tensor:
        """What of a tensor of as many elements belongs to ``piece``; shares its memory."""

class MasterParameters:
    """What an optimizer steps where state is sharded or 16-bit; sharding/master_parameters.h."""

    def __init__(
        self,
        *,
        session: Session,
        store: ParameterStore,
        shapes: Sequence[Sequence[int]],
        group_of: Sequence[int],
        whole: Sequence[bool],
        counts: Sequence[bool],
        groups: int,
        one_parameter_each: bool,
        control: ProcessGroup | None,
        make_leaf: Callable[[torch.Tensor], torch.Tensor],
    ) -> None: ...
    @property
    def runs(self) -> list[MasterRun]: ...
    def flat_groups(self) -> list[torch.Tensor]: ...
    def add(self, parameters: Sequence[int], group: int) -> None:
        """These are in ``group`` from now on: more runs, behind those that are there."""
    def show_gradients(self, visible: bool) -> None: ...
    def clear_gradients(self) -> None:
        """Zeros in the store for these parameters, and the runs show none."""
    def norm(self, norm_type: float) -> float:
        """Of the gradients of these. Collective over a copy of the model."""
    def norms_by_number(self, powers: torch.Tensor, norm_type: float) -> torch.Tensor: ...

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
    def remove(self, masters: MasterParameters) -> None: ...
    def begin_accumulation(self) -> None:
        """A step is about to add to gradients that an update has left."""
    def begin(self) -> None: ...
    def unscale(self) -> None:
        """Gradients become those of the loss itself, once. Where some are not finite, ``overflow``
        is True on all ranks if ``scaled``; else raises."""
    def clip(self, max_norm: float, norm_type: float) -> float:
        """Returns the norm over the whole model before clipping; -1 after an overflow."""
    def begin_update(self) -> float | None:
        """What gradients are still to be multiplied by; None where no update may follow."""
    def apply_factor(self) -> None: ...
    def end_update(self) -> None:
        """The masters were changed: modules see them. Collective over the shard group."""
    @property
    def overflow(self) -> bool: ...
    @property
    def last_norm(self) -> float | None: ...

def clip_gradients(
    *,
    session: Session,
    what: str,
    slices: Sequence[torch.Tensor],
    whole: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    device: torch.device,
) -> torch.Tensor:
    """Scales gradients to a norm of at most ``max_norm`` over the whole model. Returns the norm
    before that. Collective over the model-parallel group; sharding/gradient_clipping.h."""

# --- bindings_tensor_parallel.cc

class Redistribution:
    """How a tensor changes hands between tensor ranks;
    tensor_parallel/torch_free/redistribution.h."""

    @staticmethod
    def stay() -> Redistribution: ...
    @staticmethod
    def slice(dim: int) -> Redistribution: ...
    @staticmethod
    def gather(dim: int) -> Redistribution: ...
    @staticmethod
    def reduce_scatter(dim: int) -> Redistribution: ...
    @staticmethod
    def all_reduce() -> Redistribution: ...
    @staticmethod
    def exchange(dim: int, join: int) -> Redistribution: ...

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
    ) -> None: ...
    @property
    def bytes_sent(self) -> int: ...
    def move(self, redistribution: Redistribution, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor after ``redistribution``, without a history for autograd."""
    def cross(self, mapping: RegionMapping, tensor: torch.Tensor) -> torch.Tensor:
        """The same forward, differentiable."""
    def layer_norm(
        self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> torch.Tensor: ...
    def vocabulary_loss(
        self, scores: torch.Tensor, labels: torch.Tensor, ignored: int
    ) -> torch.Tensor: ...

def masked_softmax(
    scores: torch.Tensor, bias: torch.Tensor | None, causal: bool, window: int | None
) -> torch.Tensor:
    """softmax(scores + bias), without later keys if ``causal``, and those ``window`` before;
    tensor_parallel/fused_blocks.h."""

def bias_gelu(states: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(states + bias), which keeps both and not their sum."""
