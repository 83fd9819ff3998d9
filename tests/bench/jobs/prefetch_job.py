# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench prefetch: layers that compute as long as the wire takes for their
parameters, by turns with and without fetching ahead, and with FSDP2.

    prefetch_job.py SECONDS_A_GATHER

A forward takes that long a layer, a backward twice: it gathers, and it reduces.
"""

from __future__ import annotations

import sys
from functools import partial

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from emulated_device import multiply
from hosts_clock import Measurements
from smdistributed import _runtime
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS, ELEMENTS, ROUNDS, CALLS = 24, 1 << 17, 3, 2
SECONDS = float(sys.argv[1])


class Layer(nn.Module):
    """The wire has work for it, the processor hardly any."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ELEMENTS))

    def forward(self, x):
        return multiply(x, self.weight, lambda: SECONDS, lambda: 2 * SECONDS)


def make_module() -> nn.Module:
    return nn.Sequential(*(Layer() for _ in range(LAYERS)))


def measure_ours(found: Measurements, who: str, *, ahead: bool) -> None:
    smp.init(
        {
            "ddp": True,
            "sharded_data_parallel_degree": dist.get_world_size(),
            "sdp_param_persistence_threshold": 0,
            "sdp_reduce_bucket_size": ELEMENTS,
        }
    )
    store = _runtime.ParameterStore
    _runtime.ParameterStore = partial(store, prefetch=ahead)  # type: ignore[misc,assignment]
    model = smp.DistributedModel(make_module())
    _runtime.ParameterStore = store  # type: ignore[misc]
    x = torch.ones(1)

    @smp.step
    def train(x):
        model.backward(model(x).sum())

    def look() -> None:
        with torch.no_grad():
            model(x)

    def step() -> None:
        model.zero_grad()
        train(x)

    for number in range(CALLS + 1):
        found.add(f"forward: {who}", look, counts=number > 0)
        found.add(f"step: {who}", step, counts=number > 0)
    smp.shutdown()


def measure_fsdp(found: Measurements) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_module()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(model, mesh=mesh)
    x = torch.ones(1)

    def look() -> None:
        with torch.no_grad():
            model(x)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    for number in range(CALLS + 1):
        found.add("forward: FSDP2", look, counts=number > 0)
        found.add("step: FSDP2", step, counts=number > 0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = Measurements()
    for _ in range(ROUNDS):
        measure_ours(found, "ours", ahead=True)
        measure_ours(found, "ours, nothing ahead", ahead=False)
        measure_fsdp(found)
    found.print_result(layers=LAYERS, bytes=ELEMENTS * 4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
