# SPDX-License-Identifier: Apache-2.0
"""A script of SMP v2 whose settings are those of the job, and which ends without a word to us."""

from __future__ import annotations

import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch.distributed as dist
import torch.sagemaker as tsm
from sagemaker_tensor_jobs import Training, made

dist.init_process_group("gloo")
tsm.init()
assert (tsm.state.tp_size, tsm.state.hybrid_shard_degree) == (2, 1)
training = Training(made("llama"))
(loss, _), *_ = training.steps(0, 2)
print(f"rank {dist.get_rank()} of {tsm.state.world_size}: first loss {loss:.4f}", flush=True)
dist.destroy_process_group()
