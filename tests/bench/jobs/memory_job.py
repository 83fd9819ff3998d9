# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench memory: what training takes of it beyond what it took before there was a
model, sharded by us or by a peer.

    memory_job.py ours|fsdp|deepspeed

Prints the largest such growth of resident memory over all ranks, without the pages of program
files that are read as code first runs, and the model's elements.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

LAYERS, WIDTH, STEPS = 24, 1024, 4
LIVE_LAYERS = 3  # layers that may be whole at once: in use, and fetched ahead


def make_module() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # Fused: others make copies as large as all that they step, which is not what is measured.
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def make_ours() -> Callable[[], None]:
    import smdistributed.modelparallel.torch as smp  # noqa: PLC0415 - peers do without it

    model = smp.DistributedModel(make_module())
    optimizer = smp.DistributedOptimizer(make_optimizer(model))

    @smp.step
    def train(x):
        model.backward(model(x).square().mean())

    def step() -> None:
        optimizer.zero_grad()
        train(torch.ones(1, WIDTH))
        optimizer.step()

    return step


def make_fsdp() -> Callable[[], None]:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - as above
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - as above

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_module()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(model)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, WIDTH)).square().mean().backward()
        optimizer.step()

    return step


def make_deepspeed() -> Callable[[], None]:
    import deepspeed  # noqa: PLC0415 - where ci/peers put it

    module = make_module()
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=make_optimizer(module),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": 3,
                "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": LIVE_LAYERS * WIDTH * WIDTH,
                "stage3_prefetch_bucket_size": WIDTH * WIDTH,
                "reduce_bucket_size": WIDTH * WIDTH,
                "sub_group_size": 1_000_000_000,
            },
        },
    )

    def step() -> None:
        engine.backward(engine(torch.ones(1, WIDTH)).square().mean())
        engine.step()

    return step


CONTESTANTS = {"ours": make_ours, "fsdp": make_fsdp, "deepspeed": make_deepspeed}


def start(who: str) -> None:
    if who == "fsdp":
        import smdistributed.modelparallel.torch as smp  # noqa: PLC0415 - it tells the ranks

        smp.init({"ddp": True})
    elif who == "deepspeed":
        import deepspeed  # noqa: PLC0415 - where ci/peers put it

        deepspeed.init_distributed("gloo", verbose=False)
    else:
        import smdistributed.modelparallel.torch as smp  # noqa: PLC0415 - as above

        smp.init(
            {
                "ddp": True,
                "sharded_data_parallel_degree": 4,
                "sdp_param_persistence_threshold": 0,
                "sdp_max_live_parameters": LIVE_LAYERS * WIDTH * WIDTH,
                "sdp_reduce_bucket_size": WIDTH * WIDTH,
            }
        )


def status(name: str) -> int:
    """Bytes of a line of this process's status: VmRSS, resident now, of which RssFile are pages of
    files, and VmHWM, resident at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def warm_up() -> None:
    """Code and threads that any training needs: the first optimizer alone imports 60 MB."""
    model = nn.Linear(8, 8)
    optimizer = make_optimizer(model)
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    start(sys.argv[1])
    dist.all_reduce(torch.ones(WIDTH))  # connections are there
    warm_up()
    before = status("VmRSS") - status("RssFile")
    step = CONTESTANTS[sys.argv[1]]()
    step()
    # Memory that construction took and gave back is not part of the peak.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what there is now
    of_files = status("RssFile")  # at the peak there will be no fewer
    for _ in range(STEPS):
        step()
    grown = torch.tensor(float(status("VmHWM") - of_files - before), dtype=torch.float64)
    dist.all_reduce(grown, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        elements = LAYERS * WIDTH * WIDTH
        print("RESULT " + json.dumps({"bytes": grown.item(), "elements": elements}), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
