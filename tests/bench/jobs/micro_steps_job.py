# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench mics and defer: optimizer steps of a vision transformer, each of four
micro-steps, by turns as the library and its peers shard it.

    micro_steps_job.py ROUNDS BATCH CONTESTANT...

Prints for each contestant the seconds of its steps and the bytes that left a host in the last, and
the losses of all steps.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from hosts_clock import Measurements
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import ViTConfig, ViTForImageClassification

MICRO_STEPS = 4
PERSISTENT = 1000  # elements; above it are over 95 % of the model
SHAPE = {
    "image_size": 8,
    "patch_size": 2,
    "num_channels": 1,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 4 * 128,
    "num_labels": 10,
}

#: One optimizer step on the batches of its micro-steps; the losses of this rank.
Step = Callable[[list[tuple[torch.Tensor, torch.Tensor]]], list[float]]


def make_module() -> nn.Module:
    torch.manual_seed(1)
    return ViTForImageClassification(ViTConfig(**SHAPE))


def layers_of(module: nn.Module) -> nn.ModuleList:
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    return max(lists, key=len)


def loss_of(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(images).logits, labels)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def batches_of(turn: int, rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1000 * turn + dist.get_rank())
    return [
        (
            torch.randn(rows, 1, 8, 8, generator=generator),
            torch.randint(0, 10, (rows,), generator=generator),
        )
        for _ in range(MICRO_STEPS)
    ]


# --- Contestants ---


def make_ours(degree: int, passes: int) -> Step:
    """With `passes` below the micro-steps, gradients meet the other replicas more often."""
    smp.init(
        {
            "ddp": True,
            "sharded_data_parallel_degree": degree,
            "sdp_param_persistence_threshold": PERSISTENT,
            "sdp_gradient_clipping": 0,  # as none of the peers does
        }
    )
    model = smp.DistributedModel(make_module(), backward_passes_per_step=passes)
    optimizer = smp.DistributedOptimizer(make_optimizer(model))
    store = model.sharded.store  # type: ignore[union-attr]
    units = store.units()
    sharded = sum(unit["elements"] for unit in units if not unit["persistent"])
    assert sharded >= 0.95 * sum(unit["elements"] for unit in units)

    @smp.step
    def micro_step(images, labels):
        loss = loss_of(model, images, labels)
        model.backward(loss)
        return loss

    def step(batches):
        optimizer.zero_grad()
        losses = [micro_step(*batch).reduce_mean().item() for batch in batches]
        optimizer.step()
        return losses

    return step


def make_fsdp(shape: tuple[int, ...], names: tuple[str, ...]) -> Step:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = make_module()
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh)
    model = fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(model)

    def step(batches):
        optimizer.zero_grad()
        losses = []
        for number, batch in enumerate(batches, start=1):
            model.set_requires_all_reduce(number == len(batches))
            loss = loss_of(model, *batch)
            loss.backward()
            losses.append(loss.item())
        for parameter in model.parameters():  # others average over micro-steps, too, or neither
            assert parameter.grad is not None
        optimizer.step()
        return losses

    return step


def make_deepspeed() -> Step:
    import deepspeed  # noqa: PLC0415 - where ci/peers put it

    deepspeed.init_distributed("gloo", verbose=False)
    module = make_module()
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=make_optimizer(module),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": MICRO_STEPS,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": 3,
                "overlap_comm": False,
                "stage3_param_persistence_threshold": PERSISTENT,
            },
        },
    )

    def step(batches):
        losses = []
        for batch in batches:
            loss = loss_of(engine, *batch)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    return step


CONTESTANTS: dict[str, Callable[[], Step]] = {
    "ours, k=2": lambda: make_ours(2, MICRO_STEPS),
    "ours, k=2, hop 2 every micro-step": lambda: make_ours(2, 1),
    "ours, k=4": lambda: make_ours(4, MICRO_STEPS),
    "FSDP2, HSDP": lambda: make_fsdp((2, 2), ("replicate", "shard")),
    "FSDP2, full shard": lambda: make_fsdp((4,), ("shard",)),
    "DeepSpeed, ZeRO-3": make_deepspeed,
}


def main() -> None:
    rounds, rows, chosen = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if importlib.util.find_spec("deepspeed") is None and "DeepSpeed, ZeRO-3" in chosen:
        chosen.remove("DeepSpeed, ZeRO-3")
    found = Measurements()
    losses: dict[str, list[list[float]]] = {who: [] for who in chosen}
    ours = [who for who in chosen if who.startswith("ours")]
    # A job has one model of ours, so each of ours races the peers in turn or runs alone.
    for leader in ours or [""]:
        racing = [leader] if leader else []
        if leader == (ours or [""])[0]:
            racing += [who for who in chosen if who not in ours]
        steps = {who: CONTESTANTS[who]() for who in racing}
        for turn in range(rounds + 2):
            for who, step in steps.items():
                found.add(
                    who,
                    lambda step=step, who=who, turn=turn: losses[who].append(
                        step(batches_of(turn, rows))
                    ),
                    counts=turn >= 2,  # our prefetch learns in one pass
                )
        if leader:
            smp.shutdown()
    found.print_result(losses=losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
