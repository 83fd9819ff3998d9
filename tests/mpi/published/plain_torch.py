# SPDX-License-Identifier: Apache-2.0
"""Names of torch.sagemaker over nothing but PyTorch: the other side of a comparison.

FSDP1 gets the groups that ``hybrid_shard_degree`` means, made here; all else is PyTorch's own.
Where the variable INITIAL_VALUES names a file, the model begins with its values. Checkpoints cannot
be saved or resumed, only whole models.
"""

import contextlib
import json
import os
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.fsdp.api as fsdp_api
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
plain_construct = FullyShardedDataParallel.__init__


class Ranker:
    """Ranks are asked for what concerns checkpoints alone."""

    def get_rep_rank(self, rank):
        return rank


class State:
    def __init__(self):
        given = json.loads(os.environ.get("SM_HP_MP_PARAMETERS", "{}"))
        self.tensor_parallel_degree = self.expert_parallel_degree = 1
        self.context_parallel_degree, self.cp_size, self.cp_rank = 1, 1, 0
        self.hybrid_shard_degree = given.get("hybrid_shard_degree", 0)
        self.sm_activation_offloading = given.get("sm_activation_offloading", True)
        self.ranker = Ranker()
        self.groups = {}

    def init(self, config=None):
        for name, value in (config or {}).items():
            setattr(self, name, value)

    def shard_groups(self, degree):
        """This rank's group of those that shard a copy, and of those that hold the same shard."""
        if degree not in self.groups:
            size, rank = dist.get_world_size(), dist.get_rank()
            copies = [list(range(at, at + degree)) for at in range(0, size, degree)]
            shards = [list(range(at, size, degree)) for at in range(degree)]
            made = [(ranks, dist.new_group(ranks)) for ranks in [*copies, *shards]]
            self.groups[degree] = tuple(group for ranks, group in made if rank in ranks)
        return self.groups[degree]


state = State()
making = False


def construct(self, module, *, process_group=None, sharding_strategy=None,
              post_param_init_fn=None, device_id=None, **options):  # fmt: skip
    global making  # noqa: PLW0603 - parts are made while the whole is
    if not making:
        if "INITIAL_VALUES" in os.environ:
            module.load_state_dict(torch.load(os.environ["INITIAL_VALUES"], weights_only=True))
        degree = state.hybrid_shard_degree
        if degree == 1:
            sharding_strategy = ShardingStrategy.NO_SHARD
        elif degree > 1 and sharding_strategy not in HYBRID:
            sharding_strategy = ShardingStrategy.HYBRID_SHARD
        if sharding_strategy in HYBRID:
            process_group = state.shard_groups(degree or dist.get_world_size())
    is_part, making = making, True
    plain_construct(
        self, module, process_group, sharding_strategy, device_id=torch.device("cpu"), **options
    )
    making = is_part


def clip_grad_norm_(model, max_norm):
    while isinstance(model, ActivationWrapper):
        model = model._checkpoint_wrapped_module
    return model.clip_grad_norm_(max_norm)


def on_cpu():
    """What the scripts ask CUDA for."""
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    for place, names in (
        (torch.cuda, ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats")),
        (torch.cuda.nvtx, ("range_push", "range_pop")),
    ):
        for name in names:
            setattr(place, name, lambda *_: None)
    begin = dist.init_process_group
    dist.init_process_group = lambda backend, **options: begin(
        "gloo" if backend == "nccl" else backend, **options
    )
    # FSDP1 frees what it hands out on the CPU.
    whole = fsdp_api.FullStateDictConfig
    fsdp_api.FullStateDictConfig = lambda rank0_only, offload_to_cpu: whole(rank0_only=rank0_only)
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    made = AutoModelForCausalLM.from_config
    AutoModelForCausalLM.from_config = lambda config, **_: made(config, attn_implementation="sdpa")


class Absent:
    """Of what a job without checkpoints, and with parameters from the start, does not use."""


MODULES = {
    "torch.sagemaker": {"state": state, "init": state.init, "transform": Absent},
    "torch.sagemaker.checkpoint.utils": {
        "SORT_BY_LAST_INT": Absent, "limit_num_subdirs": lambda *_, **__: None,
    },
    "torch.sagemaker.delayed_param": {"DelayedParamIniter": Absent},
    "torch.sagemaker.distributed.checkpoint.async_utils": {"AsyncCallsQueue": Absent},
    "torch.sagemaker.distributed.fsdp": {"checkpoint": Absent},
    "torch.sagemaker.distributed.fsdp.fully_sharded_data_parallel": {
        "register_tp_processing_pre_comm_hook": Absent,
    },
    "torch.sagemaker.grad_norm": {"clip_grad_norm_": clip_grad_norm_},
    "torch.sagemaker.logger": {"get_logger": lambda: __import__("logging").getLogger("plain")},
    "torch.sagemaker.nn.attn": {"FlashSelfAttention": Absent},
    "torch.sagemaker.utils": {
        "utils": types.SimpleNamespace(timeit=lambda *_: contextlib.nullcontext()),
    },
    "torch.sagemaker.utils.process_group_utils": {"get_global_ranks": dist.get_process_group_ranks},
    "transformer_engine.common.recipe": {"Format": Absent, "DelayedScaling": Absent},
}  # fmt: skip


def install():
    for name, content in MODULES.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = sys.modules.setdefault(
                ".".join(parts[:end]), types.ModuleType(".".join(parts[:end]))
            )
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        vars(sys.modules[name]).update(content)
    on_cpu()
    FullyShardedDataParallel.__init__ = construct
