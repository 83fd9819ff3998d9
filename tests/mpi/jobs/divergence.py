# SPDX-License-Identifier: Apache-2.0
"""A job in which one rank runs another module than the rest; it has to fail, not to hang.

divergence.py PERSISTENCE_THRESHOLD
"""

import sys

import smdistributed.modelparallel.torch as smp
import torch
from sharding_jobs import Forked, forked_step


def main() -> None:
    smp.init({"ddp": True, "sharded_data_parallel_degree": 2,
              "sdp_param_persistence_threshold": int(sys.argv[1])})  # fmt: skip
    model = smp.DistributedModel(Forked())
    forked_step(model, torch.ones(1, 16), 0)
    forked_step(model, torch.ones(1, 16), smp.rank())


if __name__ == "__main__":
    main()
