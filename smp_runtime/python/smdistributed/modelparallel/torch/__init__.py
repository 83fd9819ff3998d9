# SPDX-License-Identifier: Apache-2.0
"""Model parallelism for PyTorch: ``import smdistributed.modelparallel.torch as smp``.

Rooms by floor, from the top. A room imports only from floors below its own, which ``ci/check``
verifies; what begins with an underscore is private:

    huggingface   training loops of Hugging Face
    utils, patches, sharded_data_parallel_checkpoint
                  names that scripts import; what is not there yet raises when it is used
    _checkpoint   smp.save, smp.load, smp.save_checkpoint, smp.resume_from_checkpoint and
                  smp.save_pretrained: files
    model         DistributedModel, on model_views and model_states
    optimizer     DistributedOptimizer
    _self_check   steps computed once more in plain PyTorch, and compared
    model_states  state dicts of the model
    step, job     smp.step; smp.init and smp.shutdown
    _planning     profiles of scripts and models, for suggestions before they run
    _state        what state of a model and its optimizers there is, and whether saved state fits
    _tensor       which modules become distributed ones, and their first values
    _checks       guards of the training loop
    _replicas     copies of the model: averaging, Join
    model_views   modules and tensors of the wrapped model, by partition
    nn            distributed modules, and names of Transformers' models
    _sharding     sharded state, 16-bit computing, master parameters, clipping
    _pipeline     inputs and outputs of a step, calls between partitions
    _partition    the trace, and where each module goes
    optimizers    fused optimizers
    _recompute    activation checkpointing
    _metrics      numbers of steps, and the live line
    _annotations  what scripts say of modules: partition, tensor parallelism, delayed creation
    _slices       the tensor-parallel group, and how tensors lie over it
    _files        files of checkpoints, anybody's, looked at without a job
    amp           mixed precision
    _ranks        this rank among others: groups, barriers and objects, device, log, exit
    _objects      containers and objects as calls between partitions carry them
    _delayed      parameters without storage
    state_mod     smp.state: settings, model, optimizers; session and engine of this process
    _job_optimizers  those of a job, and which of them has which parameters
    ports         protocols: what lower rooms use of what higher ones make
    exceptions

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
from smdistributed.modelparallel.torch._annotations.model_creation import (
    delay_param_initialization,
    model_creation,
)
from smdistributed.modelparallel.torch._annotations.partition_annotations import set_partition
from smdistributed.modelparallel.torch._annotations.tensor_annotations import (
    set_tensor_parallelism,
    tensor_parallelism,
)
from smdistributed.modelparallel.torch._annotations.tensor_registry import (
    tp_register,
    tp_register_with_module,
)
from smdistributed.modelparallel.torch._checkpoint.batch_order import ResumableBatchSampler
from smdistributed.modelparallel.torch._checkpoint.checkpoints import (
    resume_from_checkpoint,
    save_checkpoint,
)
from smdistributed.modelparallel.torch._checkpoint.dcp_models import load_dcp, save_dcp
from smdistributed.modelparallel.torch._checkpoint.memory_checkpoints import (
    checkpoint_in_memory,
    has_checkpoint,
)
from smdistributed.modelparallel.torch._checkpoint.pretrained_models import save_pretrained
from smdistributed.modelparallel.torch._checkpoint.save_load import load, save
from smdistributed.modelparallel.torch._checkpoint.snapshots import wait_for_saves
from smdistributed.modelparallel.torch._checkpoint.stop_save import checkpoint_on_signal
from smdistributed.modelparallel.torch._files.verification import verify_checkpoint
from smdistributed.modelparallel.torch._metrics.memory_ledger import memory_summary
from smdistributed.modelparallel.torch._metrics.reports import progress
from smdistributed.modelparallel.torch._partition.split_points import partition
from smdistributed.modelparallel.torch._planning.suggestions import suggest
from smdistributed.modelparallel.torch._ranks.comm import (
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
from smdistributed.modelparallel.torch._ranks.ranks import (
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
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import (
    checkpoint,
    checkpoint_sequential,
    set_activation_checkpointing,
)
from smdistributed.modelparallel.torch._sharding.clipping import clip_grad_norm_
from smdistributed.modelparallel.torch._sharding.gathered_parameters import gathered_parameters
from smdistributed.modelparallel.torch.job import init, is_initialized, is_tracing, shutdown
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state_mod import state
from smdistributed.modelparallel.torch.step import StepOutput, step

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
    "ResumableBatchSampler",
    "StepOutput",
    "allgather",
    "barrier",
    "broadcast",
    "checkpoint",
    "checkpoint_in_memory",
    "checkpoint_on_signal",
    "checkpoint_sequential",
    "clip_grad_norm_",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "gathered_parameters",
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
    "has_checkpoint",
    "init",
    "is_initialized",
    "is_tracing",
    "load",
    "load_dcp",
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
    "save_dcp",
    "save_pretrained",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "set_tensor_parallelism",
    "shutdown",
    "size",
    "state",
    "step",
    "suggest",
    "tensor_parallelism",
    "tp_barrier",
    "tp_rank",
    "tp_register",
    "tp_register_with_module",
    "tp_size",
    "verify_checkpoint",
    "wait_for_saves",
]
