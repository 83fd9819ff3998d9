# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench gather: 4 MiB of parameters become whole, by turns as the library gathers
them by itself, in three steps of gloo, in one, and by gloo alone."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from hosts_clock import Measurements
from torch import nn

ELEMENTS, ROUNDS, CALLS = 1 << 20, 3, 3


class Unit(nn.Module):
    """One unit of parameters, and hardly any work."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ELEMENTS))

    def forward(self, x):
        return x * self.weight[0]


def measure_ours(found: Measurements, who: str, **settings: object) -> None:
    smp.init(
        {
            "ddp": True,
            "sharded_data_parallel_degree": dist.get_world_size(),
            "sdp_param_persistence_threshold": 0,
            **settings,
        }
    )
    model = smp.DistributedModel(nn.Sequential(Unit()))
    x = torch.ones(1)

    def call() -> None:
        with torch.no_grad():
            assert model(x).item() == 1

    for number in range(CALLS + 1):
        found.add(who, call, counts=number > 0)
    smp.shutdown()


def measure_gloo(found: Measurements, who: str) -> None:
    group = dist.new_group(backend="gloo")
    full = torch.empty(ELEMENTS)
    part = torch.ones(ELEMENTS // dist.get_world_size())
    for number in range(CALLS + 1):
        found.add(
            who, lambda: dist.all_gather_into_tensor(full, part, group=group), counts=number > 0
        )


def main() -> None:
    dist.init_process_group("gloo")
    found = Measurements()
    for _ in range(ROUNDS):
        measure_ours(found, "ours")
        measure_ours(found, "gloo, three steps", ddp_dist_backend="gloo")
        measure_ours(found, "ours, one step", sdp_hierarchical_allgather=False)
        measure_gloo(found, "gloo's ring")
    found.print_result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
