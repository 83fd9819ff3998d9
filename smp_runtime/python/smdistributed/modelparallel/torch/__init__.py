# SPDX-License-Identifier: Apache-2.0
"""Model parallelism for PyTorch: ``import smdistributed.modelparallel.torch as smp``.

Module map, in the order in which a job meets them:

    launch_environment   the variables a launcher sets, read once
    discovery            which rank this process is
    rendezvous           the store at which ranks find each other
    session              init, shutdown
    settings, state_mod  smp.state: settings, model, optimizer, engine of this process
    groups, ranks        groups of ranks, their numbers and c10d groups
    script_line          where the script makes a call, for errors
    meeting, comm        barriers and objects between ranks
    partition_annotations   smp.partition and smp.set_partition
    tensor_annotations, tensor_registry, predefined_modules, tensor_plan, tensor_replacement
                         which modules become distributed ones, and which those are
    model, optimizer     DistributedModel, on model_views and model_states, and DistributedOptimizer
    delayed_parameters, model_creation   parameters that get their values on their owner
    join                 replicas with different numbers of batches
    compiled_modules     a model without what torch.compile put around it
    tracing, partitioning, ownership   where each module goes
    step, splitting, collecting, step_output   smp.step, its inputs and outputs
    remote_modules, codec, remote_tensors   calls between partitions, around the engine in C++
    activation_checkpointing, recomputation   memory for time; with inputs in slow memory
    save_load            smp.save and smp.load
    checkpoints          smp.save_checkpoint and smp.resume_from_checkpoint; on saved_parts,
                         whole_models, flat_checkpoints, shard_states and checkpoint_files;
                         resliced_checkpoints and resliced_parts for other tensor ranks
    precision, shard_groups, model_blocks, sharded_model   flat shards, 16-bit computing
    master_parameters, mixed_precision_steps   what an optimizer steps then, and its loss scale
    memory_ledger        smp.memory_summary
    step_meter, progress_line, reported_loss   the live line, smp.progress and the metrics
    clipping             smp.clip_grad_norm_, over partitions and slices
    training_checks, step_guards   mistakes of a training loop that would go unseen
    input_check, replica_batches   whether ranks are fed as the job says
    nn, optimizers, amp, patches, sharded_data_parallel_checkpoint
                         names that scripts import; what is not there yet raises when it is used

Work is done in C++ (smdistributed._runtime); these modules check arguments and carry tensors.
"""

# `step` names a submodule too. The import below runs it before `step` here is bound to the
# decorator, so that a later `import …torch.step` finds it loaded and leaves the attribute alone.
from smdistributed.modelparallel.torch import amp as amp
from smdistributed.modelparallel.torch import exceptions as exceptions
from smdistributed.modelparallel.torch import model as model
from smdistributed.modelparallel.torch import nn as nn
from smdistributed.modelparallel.torch import optimizers as optimizers
from smdistributed.modelparallel.torch import patches as patches
from smdistributed.modelparallel.torch import state_mod as state_mod
from smdistributed.modelparallel.torch import utils as utils
from smdistributed.modelparallel.torch.activation_checkpointing import (
    checkpoint,
    checkpoint_sequential,
    set_activation_checkpointing,
)
from smdistributed.modelparallel.torch.checkpoints import (
    resume_from_checkpoint,
    save_checkpoint,
)
from smdistributed.modelparallel.torch.clipping import clip_grad_norm_
from smdistributed.modelparallel.torch.comm import (
    CommGroup,
    RankType,
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from smdistributed.modelparallel.torch.memory_ledger import memory_summary
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.model_creation import (
    delay_param_initialization,
    model_creation,
)
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.partition_annotations import partition, set_partition
from smdistributed.modelparallel.torch.ranks import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_process_group,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.torch.save_load import load, save
from smdistributed.modelparallel.torch.session import (
    init,
    is_initialized,
    is_tracing,
    shutdown,
)
from smdistributed.modelparallel.torch.state_mod import state
from smdistributed.modelparallel.torch.step import StepOutput, step
from smdistributed.modelparallel.torch.step_meter import progress
from smdistributed.modelparallel.torch.tensor_annotations import (
    set_tensor_parallelism,
    tensor_parallelism,
)
from smdistributed.modelparallel.torch.tensor_registry import (
    tp_register,
    tp_register_with_module,
)

WORLD = CommGroup.WORLD
MP_GROUP = CommGroup.MP_GROUP
DP_GROUP = CommGroup.DP_GROUP
PP_GROUP = CommGroup.PP_GROUP
TP_GROUP = CommGroup.TP_GROUP
RDP_GROUP = CommGroup.RDP_GROUP

__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CommGroup",
    "DistributedModel",
    "DistributedOptimizer",
    "RankType",
    "StepOutput",
    "allgather",
    "barrier",
    "broadcast",
    "checkpoint",
    "checkpoint_sequential",
    "clip_grad_norm_",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_group",
    "get_pp_process_group",
    "get_rdp_group",
    "get_rdp_process_group",
    "get_tp_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "is_initialized",
    "is_tracing",
    "load",
    "local_rank",
    "local_size",
    "memory_summary",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "partition",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "progress",
    "rank",
    "rdp_barrier",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "resume_from_checkpoint",
    "save",
    "save_checkpoint",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "set_tensor_parallelism",
    "shutdown",
    "size",
    "state",
    "step",
    "tensor_parallelism",
    "tp_barrier",
    "tp_rank",
    "tp_register",
    "tp_register_with_module",
    "tp_size",
]
