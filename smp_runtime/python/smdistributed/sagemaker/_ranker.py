# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of ranks: who shards a copy of the model, and who holds the same shard. It is that by
which ``train --plan`` draws the job.

>>> ranker = Ranker(world_size=8, shard_degree=2, tensor_degree=2)
>>> ranker.get_rep_groups()
[[0, 4], [1, 5], [2, 6], [3, 7]]
>>> ranker.shard_groups()
[[0, 2], [1, 3], [4, 6], [5, 7]]
>>> ranker.get_rep_rank(5)
1
>>> [native_hybrid_degree(size) for size in (16, 4, 12)]
[8, 4, 6]
>>> placement_warning(Ranker(4, shard_degree=2), ["a", "a", "b", "b"]) is None
True
"""

from __future__ import annotations

from smdistributed._runtime import Ranker, native_hybrid_degree, placement_warning

__all__ = ["Ranker", "native_hybrid_degree", "placement_warning"]
