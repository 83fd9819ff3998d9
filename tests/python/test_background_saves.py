# SPDX-License-Identifier: Apache-2.0
"""Saves that do not block: what they hold, what fails in them, and when they are there."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch import nn

SCRIPT = """
import os, resource, sys, torch
import smdistributed.modelparallel.torch as smp
smp.init()
model = smp.DistributedModel(torch.nn.Linear(1000, 1000))
if "several" in sys.argv:
    for step in range(5):
        with torch.no_grad():
            model.get_module().weight.fill_(step)
        smp.save_checkpoint(sys.argv[1], f"s{step}", blocking=False)
    raise SystemExit
if "forks" in sys.argv:
    smp.save_checkpoint(sys.argv[1], "zero", blocking=False)
    child = os.fork()
    if child == 0:
        sys.exit()  # as the interpreter ends
    assert os.waitpid(child, 0)[1] == 0
if "fails" in sys.argv:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
smp.save_checkpoint(sys.argv[1], "one", blocking=False)
print("went on", flush=True)
if "raises" in sys.argv:
    raise SystemExit(3)
"""


@pytest.fixture
def job(smp: ModuleType) -> tuple[ModuleType, Any, Any]:
    torch.manual_seed(3)
    model = smp.DistributedModel(nn.Sequential(nn.Linear(40, 300), nn.Linear(300, 1)))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    train(smp, model, optimizer)
    return smp, model, optimizer


def train(smp: ModuleType, model: Any, optimizer: Any) -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    optimizer.zero_grad()
    step(model, torch.ones(4, 40))
    optimizer.step()


@contextmanager
def no_large_files() -> Iterator[None]:
    """Writing beyond 10 kB fails, as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def files_in(folder: Path) -> dict[str, Any]:
    return {file.name: torch.load(file) if file.suffix == ".pt" else file.read_text()
            for file in folder.iterdir() if file.name != "manifest.json"}  # fmt: skip


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else bool(left == right)


def test_it_holds_the_state_of_its_moment(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    content = {"step": 1, "shape": (2, 3), "rng": torch.get_rng_state()}
    smp.save_checkpoint(str(tmp_path), "blocks", user_content=content)

    smp.save_checkpoint(str(tmp_path), "later", user_content=content, blocking=False)
    for _ in range(3):
        train(smp, model, optimizer)
    smp.wait_for_saves()

    assert (tmp_path / "newest").read_text() == "later_partial"
    one, two = (files_in(tmp_path / f"{tag}_partial") for tag in ("blocks", "later"))
    assert len(one) == 4
    assert same(one, two)
    assert smp.resume_from_checkpoint(str(tmp_path))["step"] == 1
    assert same(dict(model.state_dict()), {k: v for k, v in one["model_0_0.pt"].items()
                                           if not k.startswith("_smp")})  # fmt: skip
    smp.verify_checkpoint(tmp_path)


@pytest.mark.parametrize("blocking", [True, False])
def test_memory_of_two_types_is_refused(smp: ModuleType, tmp_path: Path, blocking: bool) -> None:
    """As by torch.save: torch.load of 2.11 reads the second tensor as one of the first's type."""
    module = nn.Linear(2, 2)
    module.register_buffer("bits", module.weight.detach().view(torch.int32))
    smp.DistributedModel(module)

    with pytest.raises(SMPCheckpointError, match=r"float32 and torch\.int32 share memory"):
        smp.save_checkpoint(str(tmp_path), "a", blocking=blocking)

    assert not list(tmp_path.iterdir())


def test_a_whole_model_may_be_written_later(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    expected = {name: value.clone() for name, value in model.state_dict().items()}

    smp.save_checkpoint(str(tmp_path), "model.pt", partial=False, blocking=False)
    train(smp, model, optimizer)
    smp.wait_for_saves()

    assert same(torch.load(tmp_path / "model.pt", mmap=True), expected)


def test_a_resume_and_a_save_wait_for_it(job: Any, tmp_path: Path) -> None:
    smp, _, _ = job
    for number in range(4):
        smp.save_checkpoint(
            *(str(tmp_path), f"s{number}"), user_content=number, blocking=number == 3,
            num_kept_partial_checkpoints=2,
        )  # fmt: skip
    assert sorted(path.name for path in tmp_path.glob("*_partial")) == ["s2_partial", "s3_partial"]

    smp.save_checkpoint(str(tmp_path), "s4", user_content=4, blocking=False)
    assert smp.resume_from_checkpoint(str(tmp_path)) == 4


def test_memory_of_copies_is_used_again(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    assert smp.memory_summary()["snapshots"] == 0
    state = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    for number in range(3):
        smp.save_checkpoint(str(tmp_path), f"s{number}", blocking=False)
        train(smp, model, optimizer)
    assert smp.memory_summary()["snapshots"] == sum(tensor.nbytes for tensor in state)


def test_a_failure_is_raised_by_the_next_call_and_leaves_nothing(job: Any, tmp_path: Path) -> None:
    smp, _, _ = job
    smp.save_checkpoint(str(tmp_path), "good", blocking=False)
    smp.wait_for_saves()
    there = sorted(tmp_path.iterdir())

    with no_large_files():
        smp.save_checkpoint(str(tmp_path), "bad", blocking=False)
        with pytest.raises(SMPCheckpointError, match=r"cannot write .*model_0_0\.pt: File too lar"):
            smp.save_checkpoint(str(tmp_path), "next", blocking=False)

    assert sorted(tmp_path.iterdir()) == there
    assert (tmp_path / "newest").read_text() == "good_partial"
    smp.wait_for_saves()  # said once
    smp.save_checkpoint(str(tmp_path), "next", blocking=False)
    smp.wait_for_saves()
    assert (tmp_path / "newest").read_text() == "next_partial"


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, words)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **variables},
    )  # fmt: skip


def test_the_end_of_the_script_waits_for_it(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "newest").read_text() == "one_partial"


def test_a_forked_child_has_no_part_in_it(tmp_path: Path) -> None:
    ended = run(tmp_path, "forks")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "newest").read_text() == "one_partial"


def test_a_script_whose_last_save_fails_has_failed(tmp_path: Path) -> None:
    ended = run(tmp_path, "fails")
    assert ended.stdout == "went on\n"
    assert ended.returncode == 1
    assert "SMPCheckpointError" in ended.stderr
    assert "File too large" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_fails_gives_it_up_or_has_it(tmp_path: Path) -> None:
    assert run(tmp_path, "raises").returncode == 3
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["newest", "one_partial"])


@pytest.mark.parametrize("under_way", ["1", "2", "8"])
def test_several_may_be_under_way(tmp_path: Path, under_way: str) -> None:
    ended = run(tmp_path, "several", SMP_SAVES_UNDER_WAY=under_way)
    assert ended.returncode == 0, ended.stderr

    for step in range(5):
        entries = torch.load(tmp_path / f"s{step}_partial" / "model_0_0.pt")
        assert entries["weight"].unique().tolist() == [step]
    assert (tmp_path / "newest").read_text() == "s4_partial"
    assert len(list(tmp_path.iterdir())) == 6


def test_no_number_of_saves_is_refused(tmp_path: Path) -> None:
    ended = run(tmp_path, SMP_SAVES_UNDER_WAY="0")
    assert ended.returncode == 1
    assert 'SMP_SAVES_UNDER_WAY is "0"; expected 1 to 8 saves' in ended.stderr
