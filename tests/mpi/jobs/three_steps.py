# SPDX-License-Identifier: Apache-2.0
"""A job of several hosts that trains with its parameters sharded over all ranks: three_steps.py
FOLDER BACKEND steps|flat. Each rank leaves there what was trained, and which groups were used."""

import sys
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from sharding_jobs import train


def main() -> None:
    smp.init({"ddp": True, "sharded_data_parallel_degree": 4, "microbatches": 2,
              "sdp_param_persistence_threshold": 0, "sdp_gradient_clipping": 0,
              "ddp_dist_backend": sys.argv[2],
              "sdp_hierarchical_allgather": sys.argv[3] == "steps"})  # fmt: skip
    state, losses, *_ = train("strange", "sign", 4)
    assert smp.state.model is not None
    groups = smp.state.model.sharded.groups
    steps = [None if group is None else torch.distributed.get_process_group_ranks(group)
             for group in (groups.within_host, groups.across_hosts)]  # fmt: skip
    result = (state, losses, torch.distributed.get_backend(groups.shards), *steps)
    torch.save(result, Path(sys.argv[1]) / f"{smp.rank()}.pt")


if __name__ == "__main__":
    main()
