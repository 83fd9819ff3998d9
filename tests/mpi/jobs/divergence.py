# SPDX-License-Identifier: Apache-2.0
"""A job in which one rank runs another module than the rest; it has to fail, not to hang.

divergence.py PERSISTENCE_THRESHOLD: 0, or 300 for blocks that are persistent between layers that
are not.
"""

import sys

import smdistributed.modelparallel.torch as smp
import torch
from sharding_jobs import Product
from torch import nn


class Forked(nn.Module):
    """Backward, a rank that skips a block has the gradients of all blocks last, the others before
    those of the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 16, bias=False)
        self.blocks = nn.ModuleList(Product(number, 16) for number in range(2))
        self.last = nn.Linear(16, 32, bias=False)

    def forward(self, x, blocks: int):
        x = self.first(x)
        for block in self.blocks[:blocks]:
            x = block(x)
        return self.last(x)


@smp.step
def step(model, x, blocks):
    model.backward(model(x, blocks).sum())


def main() -> None:
    smp.init({"ddp": True, "sharded_data_parallel_degree": 2,
              "sdp_param_persistence_threshold": int(sys.argv[1])})  # fmt: skip
    model = smp.DistributedModel(Forked())
    step(model, torch.ones(1, 32), 2)
    step(model, torch.ones(1, 32), 2 - smp.rank())


if __name__ == "__main__":
    main()
