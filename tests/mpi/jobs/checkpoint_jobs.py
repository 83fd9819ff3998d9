# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_checkpoints.py."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from models import Stack, make_batches, make_model

BATCH = 16


@smp.step
def train_step(model, tokens, labels):
    loss = F.cross_entropy(model(tokens), labels)
    model.backward(loss)
    return loss


def make_adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def wrapped(depth: int = 4):
    model = smp.DistributedModel(make_model(lambda: Stack(depth)))
    return model, smp.DistributedOptimizer(make_adam(model))


def one_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = train_step(model, *(part.chunk(smp.dp_size())[smp.dp_rank()] for part in batch))
    optimizer.step()
    return [one.item() for one in loss.outputs]


def train_and_save(folder: str, *, partial: bool, steps: int, more: int, blocking: bool = True):
    """Saves after `steps` steps, then makes `more`; losses of those and the trained model."""
    model, optimizer = wrapped()
    batches = make_batches(steps + more, BATCH)
    for batch in batches[:steps]:
        one_step(model, optimizer, batch)
    content = {"steps": steps, "rng": torch.get_rng_state()}
    smp.save_checkpoint(
        *(folder, f"step_{steps}"), partial=partial, user_content=content, blocking=blocking
    )
    losses = [one_step(model, optimizer, batch) for batch in batches[steps:]]
    return losses, model.state_dict(), optimizer.state_dict()


def resume_and_train(folder: str, *, partial: bool, more: int, tag: str | None = None):
    model, optimizer = wrapped()
    content = smp.resume_from_checkpoint(folder, tag=tag, partial=partial)
    batches = make_batches(content["steps"] + more, BATCH)[content["steps"] :]
    losses = [one_step(model, optimizer, batch) for batch in batches]
    owned = sorted(name for name, _ in model.local_named_parameters())
    held = sum(1 for _ in optimizer.optimizer.state)
    return losses, model.state_dict(), optimizer.state_dict(), owned, held


def resume_only(folder: str, **arguments):
    wrapped(arguments.pop("depth", 4))
    return smp.resume_from_checkpoint(folder, **arguments)


def resume_in_the_middle(folder: str):
    """Resumes after the first step, when modules may be elsewhere than in the checkpoint."""
    model, optimizer = wrapped()
    one_step(model, optimizer, make_batches(1, BATCH)[0])
    content = smp.resume_from_checkpoint(folder)
    batches = make_batches(content["steps"] + 2, BATCH)[content["steps"] :]
    return [one_step(model, optimizer, batch) for batch in batches]


def save_before_the_first_step(folder: str):
    wrapped()
    smp.save_checkpoint(folder, "early")


def save_different_tags(folder: str):
    wrapped()
    smp.save_checkpoint(folder, f"step_{smp.rank()}")


class Unpicklable:
    def __reduce__(self):
        raise ArithmeticError("this object cannot be pickled")


def fail_on_one_rank(folder: str, how: str, *, blocking: bool):
    """A save that fails on one rank only, after one that did not."""
    model, optimizer = wrapped()
    batches = make_batches(2, BATCH)
    one_step(model, optimizer, batches[0])
    smp.save_checkpoint(folder, "same", user_content={"steps": 1})
    before = model.local_state_dict()
    before = {key: value.clone() for key, value in before.items() if torch.is_tensor(value)}
    one_step(model, optimizer, batches[1])
    error = ""
    content = {"steps": 2}
    if how == "object" and smp.rank() == 0:
        content["bad"] = Unpicklable()
    full_disk = how == "disk" and smp.rank() == smp.size() - 1
    try:
        with file_limit(2048 if full_disk else None):
            smp.save_checkpoint(folder, "same", user_content=content, blocking=blocking)
            smp.wait_for_saves()
    except smp.exceptions.SMPCheckpointError as caught:
        error = str(caught)
    loaded = smp.resume_from_checkpoint(folder)
    after = model.local_state_dict()
    same = all(torch.equal(after[key], value) for key, value in before.items())
    left = sorted(entry.name for entry in Path(folder).iterdir())
    return error, loaded, same, left


@contextmanager
def file_limit(size):
    """No file of this process grows beyond `size` bytes."""
    if size is None:
        yield
        return
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def keep_some(folder: str):
    model, optimizer = wrapped()
    one_step(model, optimizer, make_batches(1, BATCH)[0])
    for step in range(4):
        smp.save_checkpoint(folder, f"step_{step}", num_kept_partial_checkpoints=2)
    return sorted(os.listdir(folder)), (Path(folder) / "newest").read_text()


def gather_on_the_cpu():
    """All parameters and buffers on every rank, as training left them on their owners."""
    model, optimizer = wrapped()
    one_step(model, optimizer, make_batches(1, BATCH)[0])
    expected = model.state_dict()
    assert model.cpu() is model
    held = model.get_module().state_dict()
    same = all(torch.equal(held[key], value) for key, value in expected.items())
    return same, one_step(model, optimizer, make_batches(2, BATCH)[1])
