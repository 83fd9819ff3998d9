# SPDX-License-Identifier: Apache-2.0
"""No file runs code unless the script says so; and what scripts keep beside a model is read."""

import argparse
import datetime
import os
import pickle
import random
import re
import shutil
import threading
import types
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_full_state_dict_from_sharded_data_parallel_checkpoint as full_state_dict,
)
from torch import nn
from torch.optim import lr_scheduler

GOLDEN = Path(__file__).parents[1] / "golden_checkpoints"


class Hostile:
    """Unpickled, it makes the folder ``mark``."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


class Note:
    """An object of the user's."""

    text = "kept"


@pytest.fixture
def job(smp: ModuleType) -> tuple[ModuleType, Any]:
    model = smp.DistributedModel(nn.Linear(2, 1))
    smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return smp, model


def make_hostile(file: Path, mark: Path) -> None:
    """Puts a hostile object among what ``file`` holds."""
    content = torch.load(file) if file.is_file() else {}
    content["hostile"] = Hostile(mark)
    torch.save(content, file)


# --- Attacks ---


@pytest.mark.parametrize("name", ["model_0_0.pt", "optimizer_0_0.pt", "user_content.pt"])
def test_no_part_runs_code(job: Any, tmp_path: Path, name: str) -> None:
    smp, _ = job
    smp.save_checkpoint(str(tmp_path), "a", user_content={"step": 1})
    folder = tmp_path / "a_partial"
    (folder / "manifest.json").unlink()  # which whoever changes a file can sign anew
    make_hostile(folder / name, tmp_path / "mark")

    with pytest.raises(SMPCheckpointError, match=rf"{name}: it holds posix\.mkdir.*weights_only"):
        smp.resume_from_checkpoint(str(tmp_path), "a")

    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "shard.bin", "user_content_model"])
def test_no_whole_model_runs_code(job: Any, tmp_path: Path, name: str) -> None:
    smp, model = job
    before = model.state_dict()["weight"].clone()
    tag = "pytorch_model.bin" if name == "shard.bin" else name.removeprefix("user_content_")
    if name == "shard.bin":
        (tmp_path / f"{tag}.index.json").write_text('{"weight_map": {"weight": "shard.bin"}}')
    torch.save({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, tmp_path / tag)
    if name == "shard.bin":
        (tmp_path / tag).rename(tmp_path / name)
    make_hostile(tmp_path / name, tmp_path / "mark")

    with pytest.raises(SMPCheckpointError, match=rf"{name}: it holds posix\.mkdir"):
        smp.resume_from_checkpoint(str(tmp_path), tag, partial=False)

    assert not (tmp_path / "mark").exists()
    assert torch.equal(model.state_dict()["weight"], before)


def test_no_shard_runs_code_without_a_job(tmp_path: Path) -> None:
    (tmp_path / "a_partial").mkdir()
    make_hostile(tmp_path / "a_partial" / "model_0.pt", tmp_path / "mark")

    with pytest.raises(SMPCheckpointError, match=r"model_0\.pt: it holds posix\.mkdir"):
        full_state_dict(str(tmp_path), tag="a")

    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("archive", [True, False])
def test_no_object_of_a_rank_runs_code(
    smp: ModuleType, tmp_path: Path, protocol: int, archive: bool
) -> None:
    torch.save(
        Hostile(tmp_path / "mark"),
        tmp_path / "state_0",
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=archive,
    )

    with pytest.raises(SMPCheckpointError, match=r"cannot read .*state_0.*weights_only=False"):
        smp.load(str(tmp_path / "state"))

    assert not (tmp_path / "mark").exists()


def test_no_program_in_a_file_is_loaded(smp: ModuleType, tmp_path: Path) -> None:
    torch.jit.script(nn.ReLU()).save(str(tmp_path / "state_0"))

    with pytest.raises(SMPCheckpointError, match="TorchScript"):
        smp.load(str(tmp_path / "state"))


def test_harmless_objects_cannot_be_given_harmful_values(smp: ModuleType, tmp_path: Path) -> None:
    smp.save({"arguments": argparse.Namespace(x=Hostile(tmp_path / "mark"))}, f"{tmp_path}/state")

    with pytest.raises(SMPCheckpointError, match=r"posix\.mkdir"):
        smp.load(str(tmp_path / "state"))

    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("value", [numpy.array(["text"]), numpy.array([{}]), numpy.zeros(1, "V4")])
def test_arrays_of_references_are_refused(smp: ModuleType, tmp_path: Path, value: Any) -> None:
    smp.save(value, str(tmp_path / "state"))

    with pytest.raises(SMPCheckpointError, match=r"it holds numpy\.dtypes\.\w+"):
        smp.load(str(tmp_path / "state"))


# --- Ways out ---


def test_objects_of_the_user_are_named_and_read_when_trusted(job: Any, tmp_path: Path) -> None:
    smp, _ = job
    smp.save_checkpoint(str(tmp_path), "parts", user_content=Note())
    smp.save_checkpoint(str(tmp_path), "whole", partial=False, user_content=Note())
    smp.save(Note(), str(tmp_path / "state"))
    readers = [
        lambda **how: smp.resume_from_checkpoint(str(tmp_path), "parts", **how),
        lambda **how: smp.resume_from_checkpoint(str(tmp_path), "whole", partial=False, **how),
        lambda **how: smp.load(str(tmp_path / "state"), **how),
    ]

    for read in readers:
        with pytest.raises(SMPCheckpointError, match=rf"{__name__}\.Note, .*add_safe_globals"):
            read()
        assert read(weights_only=False).text == "kept"
        with torch.serialization.safe_globals([Note]):
            assert read().text == "kept"


def test_a_pickle_module_of_ones_own_is_trusted(smp: ModuleType, tmp_path: Path) -> None:
    smp.save(Note(), str(tmp_path / "state"))

    assert smp.load(f"{tmp_path}/state", pickle_module=types.SimpleNamespace(**vars(pickle)))


def test_what_the_script_allowed_stays_allowed(smp: ModuleType, tmp_path: Path) -> None:
    smp.save(argparse.Namespace(lr=0.1), str(tmp_path / "state"))
    before = set(torch.serialization.get_safe_globals())

    smp.load(str(tmp_path / "state"))
    assert set(torch.serialization.get_safe_globals()) == before
    with torch.serialization.safe_globals([argparse.Namespace]):
        smp.load(str(tmp_path / "state"))
        assert argparse.Namespace in torch.serialization.get_safe_globals()


def test_threads_may_read_at_once(smp: ModuleType, tmp_path: Path) -> None:
    smp.save(argparse.Namespace(lr=0.1), str(tmp_path / "state"))
    found: list[Any] = []

    def read() -> None:
        found.extend(smp.load(str(tmp_path / "state")) for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [argparse.Namespace(lr=0.1)] * 80


# --- What scripts keep ---


def schedulers() -> list[Any]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    step = lr_scheduler.StepLR(optimizer, 3)
    return [
        step,
        lr_scheduler.MultiStepLR(optimizer, [3, 5]),
        lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (epoch + 1)),
        lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
        lr_scheduler.CyclicLR(optimizer, 0.1, 0.2),
        lr_scheduler.OneCycleLR(optimizer, 0.1, 10),
        lr_scheduler.ReduceLROnPlateau(optimizer),
        lr_scheduler.SequentialLR(optimizer, [step, lr_scheduler.LinearLR(optimizer)], [2]),
        lr_scheduler.ChainedScheduler([step]),
    ]


def plain_objects() -> dict[str, Any]:
    return {
        "args": argparse.Namespace(lr=0.1, layers=[1, 2], folder=Path("/opt/ml"), device="cuda"),
        "config": types.SimpleNamespace(hidden=4),
        "numbers": [1, -1, 2**31, 2**40, 1.5, float("inf"), 1 + 2j, True, None, "text", b"a", b""],
        "containers": [(1, 2), {1, 2}, frozenset({1}), range(3), bytearray(b"b")],
        "torch": [torch.float16, torch.device("cpu"), torch.Size([2]), nn.Parameter(torch.ones(2))],
        "scalars": [numpy.float64(0.5), numpy.float32(0.5), numpy.int64(3), numpy.bool_(True)],
        "dates": [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.timedelta(1)],
        "python_state": random.getstate(),
        "torch_state": torch.get_rng_state(),
        "schedulers": [one.state_dict() for one in schedulers()],
    }


def test_plain_objects_of_scripts_are_read(job: Any, tmp_path: Path) -> None:
    smp, _ = job
    kept = plain_objects()
    smp.save_checkpoint(str(tmp_path), "a", user_content=kept)
    smp.save(kept, str(tmp_path / "state"))

    for found in (smp.resume_from_checkpoint(str(tmp_path), "a"), smp.load(f"{tmp_path}/state")):
        assert torch.equal(found.pop("torch_state"), kept["torch_state"])
        assert torch.equal(found["torch"].pop(), kept["torch"][-1])
        assert found["torch"] == kept["torch"][:-1]
        same = found.keys() - {"torch"}
        assert {key: found[key] for key in same} == {key: kept[key] for key in same}


@pytest.mark.parametrize("code", "?bhilqBHILQefdFD")
def test_arrays_of_numbers_are_read(smp: ModuleType, tmp_path: Path, code: str) -> None:
    array = numpy.arange(6).reshape(2, 3).astype(code)
    smp.save([array, array.T, array[:0], array[0, 1], array.astype(f">{code}")], f"{tmp_path}/a")

    found = smp.load(str(tmp_path / "a"))

    for value, expected in zip(found, [array, array.T, array[:0], array[0, 1], array], strict=True):
        numpy.testing.assert_array_equal(value, expected)


def test_random_numbers_of_numpy_go_on(smp: ModuleType, tmp_path: Path) -> None:
    generator = numpy.random.default_rng(3)
    smp.save([numpy.random.get_state(), generator.bit_generator.state], str(tmp_path / "state"))
    expected = numpy.random.random(3).tolist(), generator.random(3).tolist()

    legacy, state = smp.load(str(tmp_path / "state"))
    numpy.random.set_state(legacy)
    generator.bit_generator.state = state

    assert (numpy.random.random(3).tolist(), generator.random(3).tolist()) == expected


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_numbers_are_read_whatever_numpy_wrote_them(
    smp: ModuleType, tmp_path: Path, module: str
) -> None:
    smp.save([numpy.float64(0.5), numpy.ones(2)], str(tmp_path / "own"))
    with (
        zipfile.ZipFile(tmp_path / "own_0") as own,
        zipfile.ZipFile(tmp_path / "other_0", "w") as other,
    ):
        for name in own.namelist():
            pickled = re.sub(rb"cnumpy\._?core\.multiarray", f"c{module}".encode(), own.read(name))
            other.writestr(name, pickled)

    number, array = smp.load(str(tmp_path / "other"))

    assert (number, array.tolist()) == (0.5, [1, 1])


# --- What is there in safetensors, too ---


@pytest.mark.parametrize("tag", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
@pytest.mark.parametrize("whole", [True, False])
def test_safetensors_go_first(job: Any, tmp_path: Path, tag: str, whole: bool) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    smp, model = job
    entries = {"weight": torch.ones(1, 2), "bias": torch.ones(1)}
    make_hostile(tmp_path / "pytorch_model.bin", tmp_path / "mark")
    index = '{"weight_map": {"weight": "%s", "bias": "%s"}}'
    (tmp_path / "pytorch_model.bin.index.json").write_text(index % (("pytorch_model.bin",) * 2))
    if whole:
        safetensors.save_file(entries, tmp_path / "model.safetensors")
    else:
        safetensors.save_file(entries, tmp_path / "one.safetensors")
        (tmp_path / "model.safetensors.index.json").write_text(index % (("one.safetensors",) * 2))

    smp.resume_from_checkpoint(str(tmp_path), tag, partial=False)

    assert torch.equal(model.state_dict()["weight"], entries["weight"])


def test_what_this_library_saved_itself_goes_before_them(job: Any, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    smp, model = job
    safetensors.save_file({"weight": torch.ones(1, 2)}, tmp_path / "model.safetensors")
    expected = model.state_dict()["weight"].clone()
    smp.save_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)

    smp.resume_from_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)

    assert torch.equal(model.state_dict()["weight"], expected)


@pytest.mark.parametrize("listed", ['["../other"]', "[3]", '["model.safetensors.index.json"]'])
def test_an_index_that_lists_no_files_beside_it_is_refused(
    job: Any, tmp_path: Path, listed: str
) -> None:
    smp, _ = job
    text = f'{{"weight_map": {{"weight": {listed[1:-1]}}}}}'
    (tmp_path / "model.safetensors.index.json").write_text(text)

    with pytest.raises(SMPCheckpointError, match=r"is no index|cannot read"):
        smp.resume_from_checkpoint(str(tmp_path), "pytorch_model.bin", partial=False)


# --- Checkpoints of all versions ---


@pytest.mark.parametrize("form", sorted(GOLDEN.glob("*/*.tar.xz")), ids=lambda form: form.name)
def test_every_form_of_every_version_is_read_without_trust(form: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(form, tmp_path)
    texts = {".json", ".safetensors"}
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size > 0]
    objects = [file for file in files if file.suffix not in texts and file.name != "newest"]

    assert [read_object(file) for file in objects] or form.stem.startswith("hf_")
