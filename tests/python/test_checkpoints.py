# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders of one process: forms, foreign files, refusals, and kills."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from torch import nn

KILLER = Path(__file__).parent / "kill_while_saving.py"


@pytest.fixture
def job(smp: ModuleType) -> tuple[ModuleType, Any, Any]:
    torch.manual_seed(3)
    model = smp.DistributedModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1))
    return smp, model, optimizer


def train(smp: ModuleType, model: Any, optimizer: Any) -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    optimizer.zero_grad()
    step(model, torch.arange(16.0).view(4, 4))
    optimizer.step()


def clone(entries: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() for key, value in entries.items()}


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_parts_bring_back_model_optimizer_and_content(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    train(smp, model, optimizer)
    smp.save_checkpoint(str(tmp_path), "a", user_content={"step": 1, "shape": (2, 3)})
    expected, moments = clone(model.state_dict()), optimizer.state_dict()["state"][0]
    moments = clone(moments)
    train(smp, model, optimizer)

    content = smp.resume_from_checkpoint(str(tmp_path))

    assert content == {"step": 1, "shape": (2, 3)}
    assert same(model.state_dict(), expected)
    assert same(optimizer.state_dict()["state"][0], moments)


def test_optimizer_is_left_alone_when_asked(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    smp.save_checkpoint(str(tmp_path), "a")
    train(smp, model, optimizer)

    assert smp.resume_from_checkpoint(str(tmp_path), load_optimizer=False) == {}

    assert optimizer.state_dict()["state"][0]["step"] == 1


@pytest.mark.parametrize("tag", ["a", "a_partial", None])
def test_tag_may_carry_the_suffix_of_its_folder(job: Any, tmp_path: Path, tag: str | None) -> None:
    smp, _, _ = job
    smp.save_checkpoint(str(tmp_path), "a", user_content="here")

    assert smp.resume_from_checkpoint(str(tmp_path), tag=tag) == "here"


def test_plain_state_dict_is_taken_as_a_whole_model(job: Any, tmp_path: Path) -> None:
    smp, model, _ = job
    other = {key: value + 1 for key, value in model.state_dict().items()}
    torch.save(other, tmp_path / "fullmodel.pt")

    content = smp.resume_from_checkpoint(str(tmp_path), tag="fullmodel.pt", partial=False)

    assert content == {}
    assert same(model.state_dict(), other)


def test_whole_model_may_be_translated(job: Any, tmp_path: Path) -> None:
    smp, model, _ = job
    foreign = {f"base.{key}": value + 1 for key, value in model.state_dict().items()}
    torch.save(foreign, tmp_path / "foreign")

    smp.resume_from_checkpoint(
        str(tmp_path),
        "foreign",
        partial=False,
        translate_function=lambda entries: {k[len("base.") :]: v for k, v in entries.items()},
    )

    assert torch.equal(model.state_dict()["0.bias"], foreign["base.0.bias"])


def test_indexed_parts_of_hugging_face_are_put_together(job: Any, tmp_path: Path) -> None:
    smp, model, _ = job
    entries = {key: value + 1 for key, value in model.state_dict().items()}
    names = sorted(entries)
    halves = {"one.bin": names[:3], "two.bin": names[3:]}
    for file, keys in halves.items():
        torch.save({key: entries[key] for key in keys}, tmp_path / file)
    index = {"weight_map": {key: file for file, keys in halves.items() for key in keys}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))

    smp.resume_from_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)

    assert same(model.state_dict(), entries)
    (tmp_path / "two.bin").unlink()
    with pytest.raises(SMPCheckpointError, match=r"lists two\.bin, which is missing"):
        smp.resume_from_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)


def test_safetensors_beside_the_tag_is_read(job: Any, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    smp, model, _ = job
    entries = {key: value + 1 for key, value in model.state_dict().items()}
    safetensors.save_file(entries, tmp_path / "model.safetensors")

    smp.resume_from_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)

    assert same(model.state_dict(), entries)


@pytest.mark.parametrize("partial", [True, False])
def test_empty_user_content_is_the_mark_of_a_format(
    job: Any, tmp_path: Path, partial: bool
) -> None:
    smp, model, _ = job
    if partial:
        folder = tmp_path / "a_partial"
        folder.mkdir()
        torch.save(model.local_state_dict(), folder / "model_0_0.pt")
        (folder / "user_content.pt").touch()
    else:
        torch.save(model.state_dict(), tmp_path / "a")
        (tmp_path / "user_content_a").touch()

    content = smp.resume_from_checkpoint(str(tmp_path), "a", partial, load_optimizer=False)

    assert content == {}


def test_content_of_an_earlier_save_is_not_returned(job: Any, tmp_path: Path) -> None:
    smp, _, _ = job
    smp.save_checkpoint(str(tmp_path), "a", partial=False, user_content="old")
    smp.save_checkpoint(str(tmp_path), "a", partial=False)

    assert smp.resume_from_checkpoint(str(tmp_path), "a", partial=False) == {}


def test_newest_names_its_kind(job: Any, tmp_path: Path) -> None:
    smp, _, _ = job
    smp.save_checkpoint(str(tmp_path), "a", partial=False)
    with pytest.raises(SMPCheckpointError, match="names a, a whole model; give partial=False"):
        smp.resume_from_checkpoint(str(tmp_path))
    smp.save_checkpoint(str(tmp_path), "a")
    with pytest.raises(SMPCheckpointError, match="names a_partial, a partial one"):
        smp.resume_from_checkpoint(str(tmp_path), partial=False)


@pytest.mark.parametrize("tag", ["", ".hidden", "a/b", 3])
def test_odd_tags_are_refused(job: Any, tmp_path: Path, tag: Any) -> None:
    with pytest.raises(SMPValidationError, match="expected a file name"):
        job[0].save_checkpoint(str(tmp_path), tag)


def test_optimizer_over_other_parameters_is_refused(job: Any, tmp_path: Path) -> None:
    smp, model, optimizer = job
    train(smp, model, optimizer)
    smp.save_checkpoint(str(tmp_path), "a")
    turned = list(model.parameters())[::-1]
    smp.DistributedOptimizer(torch.optim.Adam(turned))

    with pytest.raises(SMPCheckpointError, match=r"number 0 is 0\.weight of shape \(3, 4\) in"):
        smp.resume_from_checkpoint(str(tmp_path))


def test_damaged_whole_model_is_named(job: Any, tmp_path: Path) -> None:
    smp, _, _ = job
    smp.save_checkpoint(str(tmp_path), "a", partial=False)
    data = bytearray((tmp_path / "a").read_bytes())
    data[-100] ^= 1
    (tmp_path / "a").write_bytes(data)

    with pytest.raises(SMPCheckpointError, match=r"/a has checksum [0-9a-f]{8}, but"):
        smp.resume_from_checkpoint(str(tmp_path), "a", partial=False)


def test_whole_model_that_is_none_is_named(job: Any, tmp_path: Path) -> None:
    torch.save([1], tmp_path / "a")
    (tmp_path / "b").write_bytes(b"no archive")

    with pytest.raises(SMPCheckpointError, match="/a holds a list"):
        job[0].resume_from_checkpoint(str(tmp_path), "a", partial=False)
    with pytest.raises(SMPCheckpointError, match=r"cannot read .*/b"):
        job[0].resume_from_checkpoint(str(tmp_path), "b", partial=False)


def test_model_has_to_be_wrapped_before(smp: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SMPCheckpointError, match="found no model"):
        smp.save_checkpoint(str(tmp_path), "a")
    with pytest.raises(SMPCheckpointError, match="found no model"):
        smp.resume_from_checkpoint(str(tmp_path))
    smp.DistributedModel(nn.Linear(1, 1))
    with pytest.raises(SMPCheckpointError, match="there is no optimizer yet"):
        smp.resume_from_checkpoint(str(tmp_path))


@pytest.mark.parametrize("how", [[], ["background"]], ids=["blocking", "background"])
def test_killed_saves_leave_a_complete_checkpoint(tmp_path: Path, how: list[str]) -> None:
    times = "200" if os.environ.get("SMP_LONG_TESTS") == "1" else "20"
    done = subprocess.run(
        [sys.executable, str(KILLER), str(tmp_path), times, "5", *how],
        capture_output=True,
        text=True,
        timeout=9 * int(times),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"killed {times} times" in done.stdout
