# SPDX-License-Identifier: Apache-2.0
"""Times of a training step of FSDP2 on smddp and on gloo, by turns; rank 0 prints the medians."""

from __future__ import annotations

import json
import time

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STEPS = 6
WIDTH = 768  # 4 layers of 2.25 MiB: the wire, not the multiplication, takes the time


def model_on(group: dist.ProcessGroup) -> nn.Module:
    torch.manual_seed(0)
    mesh = dist.DeviceMesh.from_group(group, "cpu")
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    dist.init_process_group("smddp")
    groups = {name: dist.new_group(backend=name) for name in ("smddp", "gloo")}
    models = {name: model_on(group) for name, group in groups.items()}
    data = torch.randn(4, WIDTH)
    times: dict[str, list[float]] = {name: [] for name in groups}
    for turn in range(STEPS + 1):  # the first one warms up
        for name, model in models.items():
            dist.barrier(groups["gloo"])
            start = time.perf_counter()
            model(data).square().mean().backward()
            took = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX, groups["gloo"])
            model.zero_grad()
            if turn > 0:
                times[name].append(took.item())
    if dist.get_rank() == 0:
        medians = {name: sorted(found)[STEPS // 2] for name, found in times.items()}
        print("RESULT " + json.dumps(medians), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
