# SPDX-License-Identifier: Apache-2.0
"""The type of ``smp.state.cfg``. tests/python/test_parameters.py makes the fields from
smp_runtime/topology/parameter_table.cc, with SMP_UPDATE_GOLDEN=1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Settings:
    """The effective value of every setting, under every documented spelling."""

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
    """keep checkpointed activations in host memory"""
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
