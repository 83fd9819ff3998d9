# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_sharded_checkpoints.py: they save shards, and resume from them."""

from __future__ import annotations

import copy
from unittest import mock

import smdistributed.modelparallel.torch as smp
from jobs.sharding_jobs import (
    KINDS,
    batch,
    float_step,
    make_optimizer,
    split_over_partitions,
    train_step,
)
from smdistributed.modelparallel.torch._state import optimizer_states, shard_states
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_buffer_names,
    get_param_shapes,
)


def made(kind: str = "strange", optimizer: str = "sign", **arguments):
    module = KINDS[kind]()
    if smp.pp_size() > 1:
        split_over_partitions(module)
    model = smp.DistributedModel(module)
    inner = make_optimizer(optimizer, model.parameters())
    return model, smp.DistributedOptimizer(inner, **arguments)


def steps_from(model, optimizer, kind, first: int, count: int):
    step_function = train_step if kind == "strange" else float_step
    for step in range(first, first + count):
        optimizer.zero_grad()
        step_function(model, batch(step, smp.dp_rank()))
        optimizer.step()


def save_after(
    folder: str, kind: str, steps: int, more: int, partial: bool = True, inner: str = "sign",
    blocking: bool = True,
):  # fmt: skip
    model, optimizer = made(kind, inner)
    steps_from(model, optimizer, kind, 0, steps)
    smp.save_checkpoint(
        *(folder, "saved"), partial=partial, user_content={"steps": steps}, blocking=blocking
    )
    whole_model, whole_optimizer = model.state_dict(), optimizer.state_dict()
    whole_model = {name: value.clone() for name, value in whole_model.items()}
    steps_from(model, optimizer, kind, steps, more)
    return model.state_dict(), optimizer.state_dict(), whole_model, whole_optimizer


def save_in_the_first_format(folder: str, kind: str, steps: int, more: int):
    """As versions did that saved masters as a rank holds them."""
    with mock.patch.object(optimizer_states, "part_for_file", shard_states.part_of_rank):
        return save_after(folder, kind, steps, more)


def save_for_published_helpers(folder: str, steps: int):
    """A model with all that is strange, stepped in two groups: shapes and names of buffers are in
    the user content. Returns its values, and the names of its groups."""
    model = smp.DistributedModel(KINDS["strange"]())
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    rest = [p for name, p in reversed(list(model.named_parameters())) if "weight" not in name]
    inner = make_optimizer("sign", [{"params": rest}, {"params": weights, "lr": 2}])
    optimizer = smp.DistributedOptimizer(inner)
    steps_from(model, optimizer, "strange", 0, steps)
    shapes = get_param_shapes(model, optimizer)
    content = {"param_shapes": shapes, "buffer_names": get_buffer_names(model.get_module())}
    smp.save_checkpoint(folder, "saved", user_content=content)
    return model.state_dict(), [list(group) for group in shapes]


def resume_after(
    folder: str, kind: str, more: int, partial: bool = True, first: int = 0, inner: str = "sign"
):
    model, optimizer = made(kind, inner)
    steps_from(model, optimizer, kind, 7, first)  # from where nothing is to stay
    content = smp.resume_from_checkpoint(folder, partial=partial, load_optimizer=partial)
    steps_from(model, optimizer, kind, content["steps"], more)
    return model.state_dict(), optimizer.state_dict()


def resume_model(folder: str, kind: str):
    """Without the optimizer."""
    model, _ = made(kind)
    smp.resume_from_checkpoint(folder, load_optimizer=False)
    return model.state_dict()


def scaled_steps(model, optimizer, first: int, count: int, spoiled: list[int]):
    """The loss scale after each step; the gradients of some overflow."""
    scales = []
    for step in range(first, first + count):
        optimizer.zero_grad()
        x = batch(step, smp.dp_rank())
        if step in spoiled:
            x[0, 0] = float("inf")
        float_step(model, x)
        optimizer.step()
        scales.append(optimizer.loss_scale)
    return scales


def save_scaled(folder: str, steps: int, more: int, spoiled: list[int], **arguments):
    model, optimizer = made("short", "adamw", **arguments)
    scaled_steps(model, optimizer, 0, steps, spoiled)
    smp.save_checkpoint(folder, "saved", partial=True)
    scales = scaled_steps(model, optimizer, steps, more, spoiled)
    return scales, optimizer.state_dict()


def resume_scaled(folder: str, steps: int, more: int, spoiled: list[int], **arguments):
    model, optimizer = made("short", "adamw", **arguments)
    scaled_steps(model, optimizer, 50, 2, [50])  # from where nothing is to stay
    smp.resume_from_checkpoint(folder)
    scales = scaled_steps(model, optimizer, steps, more, spoiled)
    return scales, optimizer.state_dict()


def resume_masters(folder: str):
    """Without the optimizer's own state: what is there then, and the learning rates."""
    model, optimizer = made("short")
    optimizer.param_groups[0]["lr"] = 7
    optimizer.loss_scale = 2.0
    smp.resume_from_checkpoint(folder, load_sharded_optimizer_state=False)
    whole = optimizer.state_dict()
    return model.state_dict(), whole, optimizer.loss_scale


def resume_another_model(folder: str):
    made("chain")
    smp.resume_from_checkpoint(folder)


def state_dicts(kind: str, how: str):
    """One optimizer's state in another, by the state dicts that scripts use."""
    model, optimizer = made(kind)
    steps_from(model, optimizer, kind, 0, 2)
    saved = {
        "whole": optimizer.state_dict,
        "gathered": optimizer.local_state_dict,
        "own": lambda: optimizer.local_state_dict(gather_if_shard=False),
    }[how]()
    saved = copy.deepcopy(saved)  # as PyTorch's, it is no copy
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    if how == "gathered" and "parameters" not in saved:
        every = smp.allgather(saved, smp.DP_GROUP)
        saved = max(every, key=lambda one: len(one["state"]))
    steps_from(model, optimizer, kind, 2, 2)
    wanted = model.state_dict()
    wanted = {name: value.clone() for name, value in wanted.items()}
    model.load_state_dict(kept)
    optimizer.load_state_dict(saved)
    steps_from(model, optimizer, kind, 2, 2)
    return model.state_dict(), wanted
