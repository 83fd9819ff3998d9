# SPDX-License-Identifier: Apache-2.0
"""``smp.save_pretrained`` by one process, against Transformers and the library safetensors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._checkpoint import pretrained_folder
from smdistributed.modelparallel.torch._checkpoint.file_splits import byte_count, split_into_files
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from torch import nn

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

SIZES = {"vocab_size": 31, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
WORDS = {"bos_token_id": 0, "eos_token_id": 0}


def gpt2() -> Any:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, **WORDS))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def job(smp: ModuleType) -> tuple[Any, Any, nn.Module]:
    module = gpt2()
    return smp, smp.DistributedModel(module), module


# --- The files ---


@pytest.mark.parametrize("size", [3000, 6000, "20KB", "5GB"])
def test_files_are_those_that_transformers_writes(job: Any, tmp_path: Path, size: Any) -> None:
    smp, model, module = job

    smp.save_pretrained(model, tmp_path / "ours", size)

    module.save_pretrained(tmp_path / "theirs", max_shard_size=size)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")


@pytest.mark.parametrize("limit", [1, 16, 40, 41, 100, 1000])
def test_tensors_are_split_as_hugging_face_splits_them(limit: int) -> None:
    hub = pytest.importorskip("huggingface_hub")
    sizes = [10, 30, 11, 50, 1, 20, 20, 41, 3, 100, 7]
    tensors = {f"t{number}": torch.ones(size, dtype=torch.int8)
               for number, size in enumerate(sizes)}  # fmt: skip

    split = split_into_files({name: t.to("meta") for name, t in tensors.items()}, limit)

    theirs = hub.split_torch_state_dict_into_shards(tensors, max_shard_size=limit)
    assert {file: list(names) for file, names in split.files.items()} == theirs.filename_to_tensors
    index = split.index(sum(sizes))
    assert (index is not None) == theirs.is_sharded
    if index is not None:
        expected = {"total_parameters": sum(sizes), **theirs.metadata}
        assert json.loads(index) == {
            "metadata": expected,
            "weight_map": theirs.tensor_to_filename,
        }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("5GB", 5 * 10**9), ("200MB", 2 * 10**8), ("1GiB", 2**30), ("1.5kb", 1500),
        (" 3 TiB ", 3 * 2**40), ("12", 12), ("12B", 12), (12, 12),
    ],
)  # fmt: skip
def test_sizes_are_numbers_or_texts(given: Any, expected: int) -> None:
    assert byte_count(given, "size") == expected


@pytest.mark.parametrize("given", ["", "GB", "5 apples", "-1GB", "5GB6", 0, -3, 2.5, True, None])
def test_other_sizes_are_refused(job: Any, tmp_path: Path, given: Any) -> None:
    smp, model, _ = job

    with pytest.raises(SMPValidationError, match=r'max_shard_size .*; expected a number .*"5GB"'):
        smp.save_pretrained(model, tmp_path, given)

    assert list(tmp_path.iterdir()) == []


# --- Values ---


def test_a_module_of_a_scripts_own_has_its_tensors_alone(smp: Any, tmp_path: Path) -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    model = smp.DistributedModel(module)

    smp.save_pretrained(model, tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    read = safetensors.load_file(tmp_path / "model.safetensors")
    assert read.keys() == module.state_dict().keys()
    assert all(torch.equal(read[name], value) for name, value in module.state_dict().items())


def test_tied_parameters_are_written_once_under_the_first_name(smp: Any, tmp_path: Path) -> None:
    module = nn.ModuleDict({"b": nn.Linear(2, 2, bias=False), "a": nn.Linear(2, 2, bias=False)})
    module["a"].weight = module["b"].weight

    smp.save_pretrained(smp.DistributedModel(module), tmp_path)

    assert list(safetensors.load_file(tmp_path / "model.safetensors")) == ["b.weight"]


def test_entries_that_no_file_holds_are_refused_by_name(smp: Any, tmp_path: Path) -> None:
    class WithState(nn.Linear):
        def get_extra_state(self) -> str:
            return "text"

        def set_extra_state(self, state: Any) -> None: ...

    model = smp.DistributedModel(nn.Sequential(WithState(2, 2)))

    with pytest.raises(SMPCheckpointError, match=r"entry 0\._extra_state .* is no tensor"):
        smp.save_pretrained(model, tmp_path)


def test_types_that_no_file_holds_are_refused_by_name(smp: Any, tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("phase", torch.ones(2, dtype=torch.complex128))

    with pytest.raises(SMPCheckpointError, match=r"phase has the type torch.complex128.* F64"):
        smp.save_pretrained(smp.DistributedModel(module), tmp_path)


# --- The folder ---


def test_a_model_in_other_files_takes_the_place_of_the_old_one(job: Any, tmp_path: Path) -> None:
    smp, model, module = job
    (tmp_path / "tokenizer.json").write_text("{}")
    for size in (3000, 6000, "5GB", 3000):
        with torch.no_grad():
            module.transformer.wte.weight.add_(1)

        smp.save_pretrained(model, tmp_path, size)

        ours = contents(tmp_path)
        assert ours.pop("tokenizer.json") == b"{}"
        if size == "5GB":
            assert [name for name in ours if "-of-" in name or "index" in name] == []
        else:
            assert "model.safetensors" not in ours
        read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
        assert all(torch.equal(read[name], v) for name, v in module.state_dict().items())


def test_a_save_that_cannot_be_published_leaves_the_old_model(job: Any, tmp_path: Path) -> None:
    smp, model, _ = job
    smp.save_pretrained(model, tmp_path, 6000)
    before = contents(tmp_path)
    (tmp_path / "model.safetensors").mkdir()

    with pytest.raises(SMPCheckpointError, match=r"a folder of that name is in the way"):
        smp.save_pretrained(model, tmp_path)

    (tmp_path / "model.safetensors").rmdir()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("moved", [-1, 0, 1, 2])
@pytest.mark.parametrize(("old", "new"), [(6000, 6000), (6000, "5GB"), ("5GB", 6000)])
def test_a_save_that_is_killed_while_it_moves_its_files_counts(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int, old: Any, new: Any
) -> None:
    smp, model, module = job
    smp.save_pretrained(model, tmp_path, old)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.no_grad():
        module.transformer.wte.weight.add_(1)
    expected = {name: value.clone() for name, value in module.state_dict().items()}
    with monkeypatch.context() as patch:
        stop_after(patch, moved)
        with pytest.raises(KeyboardInterrupt):
            smp.save_pretrained(model, tmp_path, new)
    with torch.no_grad():
        module.transformer.wte.weight.zero_()

    smp.resume_from_checkpoint(str(tmp_path), "model.safetensors", partial=False)

    assert all(torch.equal(expected[name], v) for name, v in module.state_dict().items())
    whole = before if moved < 0 else expected
    seen = read_by_transformers(tmp_path)
    assert all(torch.equal(whole[name], value) for name, value in seen.items())
    smp.save_checkpoint(str(tmp_path), "other")
    pretrained_folder.finish(tmp_path)
    finished = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(expected[name], v) for name, v in finished.items())
    assert sum("-of-" in file.name for file in tmp_path.iterdir()) == (0 if new == "5GB" else 6)
    smp.save_pretrained(model, tmp_path, new)
    assert sum("-of-" in file.name for file in tmp_path.iterdir()) in (0, 6)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def read_by_transformers(folder: Path) -> dict[str, torch.Tensor]:
    """Empty where it finds no model."""
    try:
        read: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    except OSError as error:
        if "no file named" not in str(error):
            raise
        return {}
    return dict(read.state_dict())


def stop_after(patch: pytest.MonkeyPatch, moves: int) -> None:
    """The process ends after so many files have come to their places; -1: before old ones go."""
    plain, done = Path.rename, [0]

    def unlink(path: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    def rename(path: Path, target: Path) -> Path:
        if path.parent.name.endswith(".publishing"):
            if done[0] == moves:
                raise KeyboardInterrupt
            done[0] += 1
        return plain(path, target)

    patch.setattr(Path, "rename", rename)
    if moves < 0:
        patch.setattr(Path, "unlink", unlink)


# --- Arguments ---


def test_another_model_than_the_jobs_is_refused(smp: Any, tmp_path: Path) -> None:
    with pytest.raises(SMPValidationError, match=r"got Linear; expected a smp\.DistributedModel"):
        smp.save_pretrained(nn.Linear(2, 2), tmp_path)


def test_a_file_in_the_place_of_the_folder_is_refused(job: Any, tmp_path: Path) -> None:
    smp, model, _ = job
    (tmp_path / "model").write_text("")

    with pytest.raises(SMPCheckpointError, match=r"model, which is a file; expected a folder"):
        smp.save_pretrained(model, tmp_path / "model")
    with pytest.raises(SMPValidationError, match=r"got int; expected a folder's path"):
        smp.save_pretrained(model, 3)


# --- Reading ---


@pytest.mark.parametrize("size", [6000, "5GB"])
@pytest.mark.parametrize("tag", ["pytorch_model.bin", "model.safetensors"])
def test_a_model_of_transformers_is_read_without_the_library_safetensors(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Any, tag: str
) -> None:
    smp, _, module = job
    other = gpt2()
    with torch.no_grad():
        other.transformer.wte.weight.add_(1)
    other.save_pretrained(tmp_path, max_shard_size=size)
    expected = other.state_dict()
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)

    smp.resume_from_checkpoint(str(tmp_path), tag, partial=False)

    assert all(torch.equal(expected[name], v) for name, v in module.state_dict().items())


def test_files_of_several_saves_are_refused(job: Any, tmp_path: Path) -> None:
    smp, _, module = job
    module.save_pretrained(tmp_path, max_shard_size=6000)
    first, second = sorted(tmp_path.glob("model-0000[12]-of-*"))
    second.write_bytes(first.read_bytes())

    with pytest.raises(SMPCheckpointError, match=r"lists \S+ in model-00002\S+, which does not"):
        smp.resume_from_checkpoint(str(tmp_path), "model.safetensors", partial=False)


def test_a_shard_that_is_cut_off_is_refused_by_name(job: Any, tmp_path: Path) -> None:
    smp, _, module = job
    module.save_pretrained(tmp_path, max_shard_size=6000)
    shard = sorted(tmp_path.glob("model-00002-of-*"))[0]
    shard.write_bytes(shard.read_bytes()[:-1])
    before = module.transformer.wte.weight.clone()

    with pytest.raises(SMPCheckpointError, match=r"model-00002\S+: it is cut off: tensor \S+"):
        smp.resume_from_checkpoint(str(tmp_path), "model.safetensors", partial=False)

    assert torch.equal(module.transformer.wte.weight, before)
