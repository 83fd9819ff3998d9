# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_dcp.py."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from pretrained_jobs import STEPS, evaluate, largest_unit, own_part, tokens, train, wrapped
from smdistributed.modelparallel.torch._checkpoint import dcp_content, dcp_models


def save(kind: str, folder: str, **keys: str) -> dict[str, int]:
    """Two steps, and a checkpoint in either form; what was gathered at once."""
    model, optimizer = wrapped(kind)
    train(model, optimizer, range(STEPS))
    made: list[Any] = []
    plain = dcp_models.WholeEntries

    def noted(*given: Any) -> Any:
        made.append(plain(*given))
        return made[-1]

    dcp_models.WholeEntries = noted
    try:
        smp.save_dcp(f"{folder}/dcp", model, optimizer, **keys)
    finally:
        dcp_models.WholeEntries = plain
    smp.save_checkpoint(folder, "parts")
    return {
        "gathered": max(one.largest_bytes for one in made),
        "largest_unit": largest_unit(model),
        "largest_tensor": max(one.like.nbytes for one in made[0].entries.values()),
    }


def go_on(kind: str, folder: str, dcp: bool, *, late: bool = False) -> dict[str, Any]:
    """A step after either form was loaded, before or after a first step of other values."""
    model, optimizer = wrapped(kind, seed=8)
    if late:
        train(model, optimizer, range(1))
    if dcp:
        smp.load_dcp(f"{folder}/dcp", model, optimizer)
    else:
        smp.resume_from_checkpoint(folder, "parts")
    losses = train(model, optimizer, range(STEPS, STEPS + 1))
    return {
        "losses": losses,
        "model": {name: value.clone() for name, value in model.plain_state_dict().items()},
        "optimizer": optimizer.local_state_dict(),
    }


def again(kind: str, source: str, target: str) -> float:
    """Saves what it has loaded, and says what the model loses."""
    model, optimizer = wrapped(kind, seed=8)
    train(model, optimizer, range(1))
    smp.load_dcp(source, model, optimizer)
    smp.save_dcp(target, model, optimizer)
    model.eval()
    return evaluate(model, own_part(tokens(STEPS)))


def refused(kind: str, folder: str, **given: Any) -> str:
    model, optimizer = wrapped(kind)
    before = {name: value.clone() for name, value in model.named_parameters()}
    try:
        smp.load_dcp(folder, model, optimizer, **given)
    except smp.exceptions.SMPCheckpointError as error:
        assert all(torch.equal(value, before[n]) for n, value in model.named_parameters())
        return str(error)
    return ""


def fail(folder: str) -> tuple[str, str]:
    """A save that rank 0 cannot finish, after one that it could."""
    model, optimizer = wrapped("gpt2")
    train(model, optimizer, range(1))
    smp.save_dcp(folder, model, optimizer)
    plain, count = dcp_content.DcpContent.take, [0]

    def take(content: Any, name: str) -> Any:
        count[0] += 1
        if count[0] == 20 and smp.rank() == 0:
            plain(content, name)
            raise smp.exceptions.SMPCheckpointError("the disk is full")
        return plain(content, name)

    dcp_content.DcpContent.take = take
    error = ""
    try:
        smp.save_dcp(folder, model, optimizer)
    except smp.exceptions.SMPCheckpointError as caught:
        error = str(caught)
    finally:
        dcp_content.DcpContent.take = plain
    smp.barrier()
    return error, str(smp.verify_checkpoint(folder)[0])
