# SPDX-License-Identifier: Apache-2.0
"""``smp.save_pretrained`` by one process, against Transformers and the library safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
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
