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

def write_log(level: int, message: str) -> None: ...

# --- bindings_topology.cc

class ParallelConfig:
    """The effective value of every setting, under every documented spelling.
    tests/python/test_parameters.py makes the fields from
    smp_runtime/topology/parameter_table.cc, with SMP_UPDATE_GOLDEN=1."""

    def as_json(self) -> str: ...
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
) -> ParallelConfig: ...
def refusal_to_wrap(config: ParallelConfig, world_size: int) -> str | None: ...
def compositions_as_markdown() -> str: ...
def parameters_as_markdown() -> str: ...
def parameter_names() -> list[str]: ...
def parameter_fields() -> list[tuple[str, str, str]]: ...

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
    """What a user may set by environment; session/launch/runtime_options.h."""

    @property
    def parameters(self) -> str: ...
    @property
    def log_level(self) -> int: ...
    @property
    def timeout(self) -> timedelta: ...
    @property
    def progress(self) -> bool: ...
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

def runtime_variables() -> list[tuple[str, str, str]]: ...

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

    def ranks(self, kind: str) -> list[int]: ...
    def index(self, kind: str) -> int: ...
    def user_group(self, kind: str) -> ProcessGroup: ...
    def internal_group(self, kind: str) -> ProcessGroup: ...
    def cpu_group(self, kind: str) -> ProcessGroup: ...

def set_fabric_defaults() -> None:
    """Variables of libfabric that have other defaults here, where the environment does not set
    them; transport/fabric/fabric_library.h."""

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
    nobody asks for it; metrics/step_reports.h. Collective over the job.

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

    def set_total(self, steps: int) -> None: ...
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
        """After gradients were averaged. Collective over the group; does not wait.

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

class WaitWatch:
    """Tells ranks that wait for each other in different calls; see session/waits/wait_watch.h."""

class WaitingBlock:
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
        same ``label``. Raises SMPMismatchError where ranks are in calls that wait for each
        other."""

    @property
    def watch(self) -> WaitWatch | None: ...

class ObjectExchange:
    """Bytes between ranks; blocking. Ranks are those of the job."""

    def send(self, what: str, kind: str, data: bytes, destination: int) -> None: ...
    def broadcast(self, what: str, kind: str, data: bytes) -> None: ...
    def receive(self, what: str, kind: str, source: int) -> bytes: ...
    def take_own(self, kind: str) -> bytes | None: ...
    def all_gather(self, what: str, kind: str, data: bytes) -> list[bytes]: ...

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
    ) -> None: ...
    def all_reduce(
        self,
        what: str,
        tensor: torch.Tensor,
        group: ProcessGroup,
        operation: Any,  # of dist.ReduceOp
    ) -> None:
        """In place. ``what`` begins its errors, which name absent ranks."""

    def leave(self, failed: bool, serves: bool) -> None: ...
    def some_rank_ended_well(self) -> bool: ...
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
    def store(self) -> Store: ...
    @property
    def world_store(self) -> Store: ...

# --- bindings_partition.cc

class ModuleTree:
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

def read_partition_file(text: str, where: str, tree: ModuleTree, partitions: int) -> Assignment: ...
def partition_file_text(assignment: Assignment, tree: ModuleTree) -> str: ...

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
    ``device_bytes`` is the memory of one device, 0 if that is not known, of which one recompute at a
    time needs ``recompute_bytes``."""

def assign_manual(tree: ModuleTree, partitions: int, default_partition: int) -> Assignment: ...

# --- bindings_pipeline.cc

class Engine:
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
    def close(self) -> None: ...
    def drive(
        self,
        kind: str,
        microbatches: int,
        body: Callable[[int], None],
        collect: Callable[[], tuple[bytes, list[torch.Tensor]]],
    ) -> None: ...
    def serve(self) -> tuple[bytes, list[torch.Tensor]]: ...
    def call(
        self, route: Sequence[tuple[int, int]], definition: bytes, tensors: list[torch.Tensor]
    ) -> tuple[bytes, list[torch.Tensor]]: ...
    def data_of(self, remote_tensor: torch.Tensor) -> torch.Tensor: ...
    def backward(
        self,
        tensors: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        scale: float,
    ) -> None: ...
    def track_parameters(self, parameters: Sequence[torch.Tensor]) -> None: ...
    def take_backwards(self) -> int: ...
    def last_step(self) -> EngineUse: ...
    @property
    def activation_bytes(self) -> int:
        """Of the last step, on this rank."""
    @property
    def microbatch(self) -> int: ...

class StoredActivation:
    def take(self) -> torch.Tensor: ...

class ActivationStats:
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
    def __init__(self, horizon: int, bytes_per_second: int = 0) -> None: ...
    def put(self, tensor: torch.Tensor, microbatch: int) -> StoredActivation | None: ...
    def stats(self) -> ActivationStats: ...

def heap_bytes() -> int: ...

# --- bindings_replicas.cc

class GradientReducer:
    def __init__(
        self,
        group_name: str,
        parameters: Sequence[torch.Tensor],
        bucket_bytes: int,
        overlap: bool,
        may_join: bool = True,
        watch: WaitWatch | None = None,
        flags_group_name: str = "",
    ) -> None: ...
    def set_hook(self, state: Any, hook: Callable[..., Any]) -> None: ...
    def begin_step(self, due: bool) -> None: ...
    def average(self) -> None: ...
    @property
    def progress(self) -> tuple[int, int]: ...

def broadcast_tensors(
    group_name: str,
    tensors: Sequence[torch.Tensor],
    root: int,
    may_join: bool = True,
    watch: WaitWatch | None = None,
) -> None: ...

# --- bindings_checkpoint.cc

class FileDigest:
    @property
    def name(self) -> str: ...

class AtomicFile:
    def __init__(self, path: str | PathLike[str]) -> None: ...
    def write(self, data: Buffer) -> None: ...
    def commit(self) -> FileDigest: ...

class Manifest:
    @property
    def pp(self) -> int: ...
    @property
    def tp(self) -> int: ...
    @staticmethod
    def read(path: str | PathLike[str]) -> Manifest: ...
    def __contains__(self, name: str) -> bool: ...
    def verify(self, path: str | PathLike[str]) -> None: ...

def write_file(path: str | PathLike[str], text: str) -> FileDigest: ...
def end_together(session: Session, what: str, error: str) -> None:
    """At the end of a part that all ranks end: ``error`` is what failed here, or empty. Raises
    SMPCheckpointError that names the first rank that failed."""

class CheckpointSave:
    """One save of a checkpoint by all ranks, or none: what is not published leaves nothing behind;
    checkpoint/job/checkpoint_save.h."""

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

    def add(self, file: FileDigest) -> None: ...
    def tell(self, error: str) -> None: ...
    def publish_folder(self) -> None: ...
    def publish_files(self, manifest: str) -> None: ...

def locate(root: str | PathLike[str], name: str, entry: str) -> Path: ...
def prune_folders(root: str | PathLike[str], keep: str, count: int) -> list[str]: ...

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
) -> None: ...
def sum_of_powers(tensors: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor: ...
def sum_of_squares(tensors: Sequence[torch.Tensor]) -> float: ...

# --- bindings_sharding.cc

def flatten(
    flat: torch.Tensor,
    offsets: Sequence[int],
    elements: Sequence[int],
    sources: Sequence[torch.Tensor | None],
    added: Sequence[torch.Tensor | None],
) -> None: ...

class OwnedPiece:
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

class EvenShare:
    @property
    def start(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def length(self) -> int: ...

class ShardPlan:
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

def plan_shards(session: Session) -> ShardPlan | None: ...

class ShardGroups:
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
        """With within_host the two steps of a hierarchical all-gather over gloo; else None."""
    @property
    def within_host(self) -> ProcessGroup | None: ...

def make_shard_groups(session: Session, plan: ShardPlan) -> list[ShardGroups]: ...

class ParameterStore:
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
    def enter(self, units: Sequence[int]) -> None: ...
    def read(self, unit: int) -> None: ...
    def leave(self, outputs: Sequence[torch.Tensor], failed: bool) -> None: ...
    def end_backward(self) -> None: ...
    def finish_step(self, due: bool) -> None: ...
    @property
    def has_gradients(self) -> bool: ...
    @property
    def is_accumulating(self) -> bool: ...
    def masters(self) -> list[torch.Tensor]: ...
    def pieces(self) -> list[OwnedPiece]: ...
    def zero_gradients(self) -> None: ...
    def publish(self) -> None: ...
    def accept_writes(self) -> None: ...
    def whole_unit(self, unit: int) -> list[torch.Tensor]: ...
    def even_shares(self, parameters: Sequence[int]) -> list[EvenShare]: ...
    def copy_even_shares(
        self, parameters: Sequence[int], targets: Sequence[torch.Tensor]
    ) -> None: ...
    def assign(self, parameter: int, value: torch.Tensor) -> None: ...
    def use(self) -> dict[str, int]: ...
    def traffic(self) -> dict[str, int]: ...
    def prefetched(self) -> dict[str, int]: ...

# --- bindings_masters.cc

class LossScaler:
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
    def slice_of(self, piece: OwnedPiece, tensor: torch.Tensor) -> torch.Tensor: ...

class MasterParameters:
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
    def norm(self, norm_type: float) -> float: ...
    def norms_by_number(self, powers: torch.Tensor, norm_type: float) -> torch.Tensor: ...

class MixedPrecisionSteps:
    def __init__(
        self,
        *,
        session: Session,
        store: ParameterStore,
        masters: MasterParameters,
        scaler: LossScaler,
        scaled: bool,
        clipping: float,
    ) -> None: ...
    def begin(self) -> None: ...
    def unscale(self) -> None: ...
    def clip(self, max_norm: float, norm_type: float) -> float: ...
    def begin_update(self) -> float | None: ...
    def apply_factor(self) -> None: ...
    def end_update(self) -> None: ...
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
) -> torch.Tensor: ...

class Redistribution:
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
    def __init__(
        self, forward: Redistribution, backward: Redistribution, backward_scale: float = 1.0
    ) -> None: ...

class TensorExchange:
    def __init__(
        self,
        group_name: str,
        size: int,
        rank: int,
        under_way: int = -1,
        watch: WaitWatch | None = None,
    ) -> None: ...
    @property
    def bytes_sent(self) -> int: ...
    def move(self, redistribution: Redistribution, tensor: torch.Tensor) -> torch.Tensor: ...
    def cross(self, mapping: RegionMapping, tensor: torch.Tensor) -> torch.Tensor: ...
    def layer_norm(
        self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> torch.Tensor: ...
    def vocabulary_loss(
        self, scores: torch.Tensor, labels: torch.Tensor, ignored: int
    ) -> torch.Tensor: ...

def masked_softmax(
    scores: torch.Tensor, bias: torch.Tensor | None, causal: bool, window: int | None
) -> torch.Tensor: ...
def bias_gelu(states: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor: ...
