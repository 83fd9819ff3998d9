# SPDX-License-Identifier: Apache-2.0
"""How FSDP is to shard: of the key ``hybrid_shard_degree`` and the script's strategy."""

from __future__ import annotations

from dataclasses import dataclass

from torch.distributed.fsdp import ShardingStrategy

from smdistributed.sagemaker._ranker import native_hybrid_degree

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


@dataclass(frozen=True)
class Sharding:
    """A strategy, and the number of ranks over which one copy of the model is sharded."""

    strategy: ShardingStrategy
    degree: int


def sharding_of(
    asked: ShardingStrategy | None, set_degree: int | None, world_size: int
) -> Sharding:
    """``set_degree`` is that of the keys, None where the strategy of the script says it.

    >>> sharding_of(ShardingStrategy.FULL_SHARD, 2, 4)
    Sharding(strategy=<ShardingStrategy.HYBRID_SHARD: 4>, degree=2)
    >>> sharding_of(ShardingStrategy._HYBRID_SHARD_ZERO2, 2, 4).strategy.name
    '_HYBRID_SHARD_ZERO2'
    >>> sharding_of(ShardingStrategy.HYBRID_SHARD, None, 16).degree
    8
    >>> sharding_of(ShardingStrategy.HYBRID_SHARD, 1, 16).strategy.name
    'NO_SHARD'
    """
    strategy = asked or ShardingStrategy.FULL_SHARD
    if set_degree is None:
        if strategy in HYBRID:
            return Sharding(strategy, native_hybrid_degree(world_size))
        return Sharding(strategy, 1 if strategy == ShardingStrategy.NO_SHARD else world_size)
    if set_degree == 1:
        return Sharding(ShardingStrategy.NO_SHARD, 1)
    is_zero2 = strategy == ShardingStrategy._HYBRID_SHARD_ZERO2
    return Sharding(strategy if is_zero2 else ShardingStrategy.HYBRID_SHARD, set_degree)
