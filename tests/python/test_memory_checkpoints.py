# SPDX-License-Identifier: Apache-2.0
"""States in memory: which of them a resume takes, and which checkpoint on the disk it takes
instead. Starts of a job are sessions of one process here."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPConfigError
from torch import nn

Job = Callable[..., Any]


@pytest.fixture
def start(smp: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    """start(count) begins a start of a job that keeps the state of every call."""
    monkeypatch.setenv("SMP_CHECKPOINT_MEMORY", "1")
    monkeypatch.setenv("SMP_MEMORY_FOLDER", str(tmp_path / "memory"))

    def begin(count: int, **variables: str) -> Any:
        smp.shutdown()
        for name, value in {"SM_RESTART_COUNT": str(count), **variables}.items():
            monkeypatch.setenv(name, value)
        smp.init()
        model = smp.DistributedModel(nn.Linear(300, 2))
        smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        return model

    return begin


def set_values(model: Any, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def keep(smp: ModuleType, model: Any, path: Path, value: int) -> None:
    set_values(model, value)
    smp.checkpoint_in_memory(path, {"at": value})


def save(smp: ModuleType, model: Any, path: Path, value: int, **options: Any) -> None:
    set_values(model, value)
    smp.save_checkpoint(str(path), f"at_{value}", user_content={"at": value}, **options)


def resumed(smp: ModuleType, model: Any, path: Path) -> int:
    found = int(smp.resume_from_checkpoint(str(path))["at"])
    assert all((parameter == found).all() for parameter in model.parameters())
    return found


def test_the_last_state_is_resumed_by_the_next_start(smp, start, tmp_path):
    model = start(0)
    assert not smp.has_checkpoint(tmp_path)
    keep(smp, model, tmp_path, 1)
    keep(smp, model, tmp_path, 2)  # the first may be under way: then this one waits for its turn
    smp.wait_for_saves()
    keep(smp, model, tmp_path, 3)

    model = start(1)

    assert smp.has_checkpoint(tmp_path)
    assert resumed(smp, model, tmp_path) == 3
    [kept] = (tmp_path / "memory").glob("*/state_*")
    assert not list(tmp_path.glob("at_*")), kept


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("under_way", ["1", "2"])
def test_a_newer_checkpoint_on_the_disk_is_resumed(smp, start, tmp_path, blocking, under_way):
    model = start(0, SMP_SAVES_UNDER_WAY=under_way)
    keep(smp, model, tmp_path, 1)
    save(smp, model, tmp_path, 2, blocking=blocking)

    assert resumed(smp, start(1), tmp_path) == 2


@pytest.mark.parametrize("blocking", [True, False])
def test_a_state_that_is_kept_after_a_save_is_resumed(smp, start, tmp_path, blocking):
    model = start(0, SMP_SAVES_UNDER_WAY="2")
    save(smp, model, tmp_path, 1, blocking=blocking)
    while not list((tmp_path / "memory").glob("*/state_*")):
        keep(smp, model, tmp_path, 2)

    assert resumed(smp, start(1), tmp_path) == 2


def test_another_newest_checkpoint_of_the_same_name_counts_as_newer(smp, start, tmp_path):
    model = start(0)
    save(smp, model, tmp_path, 1)
    keep(smp, model, tmp_path, 2)
    smp.wait_for_saves()
    set_values(model, 7)
    smp.save_checkpoint(str(tmp_path), "at_1", user_content={"at": 7})

    assert resumed(smp, start(1), tmp_path) == 7


def test_a_tag_names_one_on_the_disk(smp, start, tmp_path):
    model = start(0)
    save(smp, model, tmp_path, 1)
    keep(smp, model, tmp_path, 2)

    start(1)

    assert smp.resume_from_checkpoint(str(tmp_path), "at_1") == {"at": 1}


def test_what_another_job_left_is_not_resumed(smp, start, tmp_path):
    keep(smp, start(0), tmp_path, 1)

    start(0)

    assert not smp.has_checkpoint(tmp_path)
    with pytest.raises(SMPCheckpointError, match="no tag was given"):
        smp.resume_from_checkpoint(str(tmp_path))


def test_a_state_is_of_one_folder_by_whatever_name(smp, start, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    keep(smp, start(0), tmp_path / "link", 1)

    model = start(1)

    assert resumed(smp, model, Path(os.path.relpath(tmp_path))) == 1
    assert not smp.has_checkpoint(tmp_path / "other")


def test_a_damaged_state_is_refused_and_one_that_is_not_whole_not_used(smp, start, tmp_path):
    model = start(0)
    save(smp, model, tmp_path, 1)
    keep(smp, model, tmp_path, 2)
    start(1)
    [part] = (tmp_path / "memory").glob("*/state_*/model_0_0.pt")
    part.write_bytes(part.read_bytes()[:-1])

    with pytest.raises(SMPCheckpointError, match="model_0_0"):
        smp.resume_from_checkpoint(str(tmp_path))

    part.unlink()
    assert smp.resume_from_checkpoint(str(tmp_path)) == {"at": 1}


def test_every_third_call_keeps_the_state(smp, start, tmp_path):
    model = start(0, SMP_CHECKPOINT_MEMORY="3")
    for number in range(1, 6):
        keep(smp, model, tmp_path, number)
        smp.wait_for_saves()

    assert resumed(smp, start(1), tmp_path) == 3


def test_a_folder_is_needed(smp, start, tmp_path):
    start(0, SMP_MEMORY_FOLDER="")

    with pytest.raises(SMPConfigError, match="SMP_MEMORY_FOLDER is not set"):
        smp.checkpoint_in_memory(tmp_path)


def test_what_cannot_be_pickled_is_named(smp, start, tmp_path):
    start(0)

    with pytest.raises(SMPCheckpointError, match="of type module cannot be written"):
        smp.checkpoint_in_memory(tmp_path, sys)
