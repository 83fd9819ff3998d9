# SPDX-License-Identifier: Apache-2.0
"""What is cut off, missing, damaged or of another save is named, in anybody's checkpoint; and what
is whole is said to be."""

import json
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from smdistributed.modelparallel.checkpoint import main
from smdistributed.modelparallel.torch._files.verification import (
    DIGESTS,
    verifications,
    verify_checkpoint,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch import nn

GOLDEN = Path(__file__).parents[1] / "golden_checkpoints"
SIZES = (64, 48)


def trained(value: float, sizes: tuple[int, int] = SIZES) -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(*sizes), nn.Linear(sizes[1], 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, sizes[0])).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for parameter, state in optimizer.state.items():
            parameter.fill_(value)
            state["exp_avg"].fill_(value)
    return model, optimizer


def of_smp(smp: ModuleType, folder: Path, value: float) -> None:
    smp.shutdown()
    smp.init()
    model, optimizer = trained(value)
    model = smp.DistributedModel(model)
    smp.DistributedOptimizer(optimizer)
    smp.save_checkpoint(str(folder), "one", user_content={"step": 3})


def of_dcp(_: ModuleType, folder: Path, value: float) -> None:
    model, optimizer = trained(value)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    dcp.save(content, checkpoint_id=folder)


def of_torch(_: ModuleType, folder: Path, value: float) -> None:
    model, optimizer = trained(value)
    folder.mkdir()
    torch.save(model.state_dict(), folder / "model.pt")
    torch.save({"optimizer": optimizer.state_dict(), "when": Path("x")}, folder / "rest.pth")


def of_hugging_face(_: ModuleType, folder: Path, value: float, sizes: Any = SIZES) -> None:
    model, _ = trained(value, sizes)
    folder.mkdir(exist_ok=True)
    entries = list(model.state_dict().items())
    places, total = {}, 0
    for number, part in enumerate((entries[:2], entries[2:]), 1):
        name = f"model-{number:05}-of-00002.safetensors"
        save_file(dict(part), folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(dict(part), name))
        total += sum(tensor.nbytes for _, tensor in part)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


Maker = Callable[[ModuleType, Path, float], None]
KINDS: list[tuple[Maker, str]] = [
    (of_smp, "one_partial/model_0_0.pt"),
    (of_smp, "one_partial/optimizer_0_0.pt"),
    (of_dcp, "__0_0.distcp"),
    (of_torch, "model.pt"),
    (of_torch, "rest.pth"),
    (of_hugging_face, "model-00002-of-00002.safetensors"),
]
HAVE_CHECKSUMS = [case for case in KINDS if case[0] is not of_hugging_face]


@pytest.fixture
def made(smp: ModuleType, tmp_path: Path) -> Callable[[Maker, float], Path]:
    def make(maker: Maker, value: float) -> Path:
        folder = tmp_path / f"{maker.__name__}_{value}"
        maker(smp, folder, value)
        return folder

    return make


def problems_of(folder: Path) -> list[str]:
    return [problem for one in verifications(folder) for problem in one.problems]


@pytest.mark.parametrize(("maker", "name"), KINDS)
def test_a_whole_checkpoint_is_whole(made: Any, maker: Maker, name: str) -> None:
    folder = made(maker, 0.5)

    found = verify_checkpoint(folder)

    assert all(one.is_whole for one in found)
    assert sum(one.bytes for one in found) >= (folder / name).stat().st_size


@pytest.mark.parametrize(("maker", "name"), KINDS)
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_named(made: Any, maker: Maker, name: str, kept: float) -> None:
    folder = made(maker, 0.5)
    file = folder / name
    os.truncate(file, int(file.stat().st_size * kept))

    with pytest.raises(SMPCheckpointError, match=rf"\n  {file.name} is (cut off|no file of)"):
        verify_checkpoint(folder)


@pytest.mark.parametrize(("maker", "name"), KINDS)
def test_a_file_that_is_missing_is_named(made: Any, maker: Maker, name: str) -> None:
    folder = made(maker, 0.5)
    if maker is of_torch:
        pytest.skip("nothing says that it was there")
    (folder / name).unlink()

    assert [p for p in problems_of(folder) if p.startswith(f"{Path(name).name} is missing")]


def flip(file: Path) -> None:
    """Changes a bit of a tensor of 0.5."""
    content = bytearray(file.read_bytes())
    place = bytes(content).find(torch.full((8,), 0.5).numpy().tobytes())
    assert place > 0
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(("maker", "name"), HAVE_CHECKSUMS)
def test_a_damaged_file_is_named(made: Any, maker: Maker, name: str) -> None:
    folder = made(maker, 0.5)
    flip(folder / name)

    assert [p for p in problems_of(folder) if p.startswith(f"{Path(name).name} is damaged")]


@pytest.mark.parametrize(("maker", "name"), KINDS)
def test_recorded_sums_show_damage_and_other_saves(made: Any, maker: Maker, name: str) -> None:
    folder, other = made(maker, 0.5), made(maker, 0.25)
    verify_checkpoint(folder, record=True)
    assert all(one.is_whole for one in verify_checkpoint(folder))

    shutil.copy(other / name, folder / name)

    [problem] = problems_of(folder)
    assert problem.startswith(f"{Path(name).name} is damaged, or of another save")


def test_shards_of_different_saves_are_told_apart(made: Any, tmp_path: Path) -> None:
    folder = made(of_hugging_face, 0.5)
    of_hugging_face(None, tmp_path / "other", 0.5, (64, 50))  # type: ignore[arg-type]
    one, two = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))

    shutil.copy(folder / one, folder / two)
    assert "model-00002-of-00002.safetensors has no 1.bias, which" in "".join(problems_of(folder))

    shutil.copy(tmp_path / "other" / two, folder / two)
    assert "has a total_size of" in "".join(problems_of(folder))


def test_pieces_of_another_save_are_told_apart(made: Any, tmp_path: Path) -> None:
    folder = made(of_dcp, 0.5)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    properties = metadata.state_dict_metadata["model.0.weight"].properties
    object.__setattr__(properties, "dtype", torch.int32)  # as wide
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))

    [problem] = problems_of(folder)
    assert problem.startswith("__0_0.distcp is of another save: at byte ")
    assert problem.endswith("has a tensor [48, 64] of float32, where .metadata has a tensor "
                            "[48, 64] of int32 of model.0.weight")  # fmt: skip


def test_pieces_that_leave_out_elements_are_told(made: Any) -> None:
    folder = made(of_dcp, 0.5)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["model.0.weight"].chunks.clear()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))

    assert "has pieces of 0 of the 3072 elements of model.0.weight" in "".join(problems_of(folder))


def test_every_form_that_was_ever_written_is_whole(tmp_path: Path) -> None:
    forms = sorted(GOLDEN.rglob("*.tar.xz"))
    assert len(forms) > 40
    for form in forms:
        with tarfile.open(form) as archive:
            archive.extractall(tmp_path / form.parent.name / form.name)
    found = verify_checkpoint(tmp_path)
    assert len({one.folder.relative_to(tmp_path).parts[:2] for one in found}) == len(forms)


def test_pieces_outside_of_the_folder_are_refused(made: Any) -> None:
    folder = made(of_dcp, 0.5)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = "../../etc/passwd"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))

    [problem] = problems_of(folder)
    assert problem.endswith("of '../../etc/passwd', outside of its folder")


def test_what_is_no_file_keeps_nobody_waiting(made: Any) -> None:
    folder = made(of_smp, 0.5)
    file = folder / "one_partial" / "model_0_0.pt"
    file.unlink()
    os.mkfifo(file)

    assert problems_of(folder) == ["model_0_0.pt is no file"]


def test_parts_without_manifest_show_gaps(made: Any) -> None:
    folder = made(of_smp, 0.5) / "one_partial"
    (folder / "manifest.json").unlink()
    verify_checkpoint(folder)

    (folder / "model_0_0.pt").rename(folder / "model_1_0.pt")

    assert "model_0_0.pt is missing: there are parts of higher numbers" in problems_of(folder)


def test_the_name_of_the_newest_has_to_be_there(made: Any) -> None:
    folder = made(of_smp, 0.5)
    (folder / "one_partial").rename(folder / "two_partial")

    assert "newest names 'one_partial', which is missing" in problems_of(folder)


def test_hostile_pickles_run_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "mark"),)

    folder = tmp_path / "files"
    folder.mkdir()
    torch.save({"a": torch.ones(2), "b": Hostile()}, folder / "model.pt")
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Hostile()))

    assert problems_of(folder) == []
    assert problems_of(tmp_path / "dcp") != []
    assert main(["inspect", str(folder)]) == 0
    assert not (tmp_path / "mark").exists()


def test_the_command_says_it(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(of_torch, 0.5)
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(" bytes: whole\n")

    flip(folder / "model.pt")
    assert main(["verify", "--json", str(folder)]) == 1
    [said] = json.loads(capsys.readouterr().out)["checkpoints"]
    assert not said["whole"]
    assert said["problems"][0].startswith("model.pt is damaged: record data/")


def test_inspection_tells_of_tensors_and_objects(
    made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(made(of_torch, 0.5))]) == 0
    said = capsys.readouterr().out
    assert "  0.weight: float32 [48, 64]\n" in said
    assert "  when: object of pathlib.PosixPath\n" in said

    assert main(["inspect", "--json", str(made(of_dcp, 0.5))]) == 0
    [said] = json.loads(capsys.readouterr().out)["checkpoints"]
    assert said["entries"]["model.0.weight"] == {
        "dtype": "float32", "shape": [48, 64], "elements": 3072,
    }  # fmt: skip


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(SMPCheckpointError, match=r"holds no checkpoint .*; there is notes\.txt"):
        verify_checkpoint(tmp_path)
    with pytest.raises(SMPCheckpointError, match="there is no checkpoint"):
        verify_checkpoint(tmp_path / "none")


def test_damaged_sums_are_no_sums(made: Any) -> None:
    folder = made(of_torch, 0.5)
    verify_checkpoint(folder, record=True)
    (folder / DIGESTS).write_text("{")

    assert problems_of(folder)[0].startswith(f"{DIGESTS} is damaged")
