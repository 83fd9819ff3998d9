# SPDX-License-Identifier: Apache-2.0
"""Files of smp.save and smp.load."""

import pickle
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


@pytest.fixture
def rank_of_a_job(smp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """pp rank 1 of 2, tp rank 2 of 4, rdp rank 3 of 5."""
    for name, value in {
        "pp_rank": 1, "pp_size": 2, "tp_rank": 2, "tp_size": 4, "rdp_rank": 3, "rdp_size": 5,
        "mp_rank": 6,
    }.items():  # fmt: skip
        monkeypatch.setattr(ranks, name, lambda value=value: value)
    return smp


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_names_follow_the_degrees(rank_of_a_job: ModuleType, tmp_path: Path) -> None:
    rank_of_a_job.save({}, str(tmp_path / "whole.pt"), partial=False)
    rank_of_a_job.save({}, str(tmp_path / "two.pt"), partial=True)
    rank_of_a_job.save({}, str(tmp_path / "three.pt"), v3=True)

    assert files(tmp_path) == ["three.pt_1_2_3", "two.pt_1_2", "whole.pt"]


def test_without_tensor_parallelism_the_name_is_the_mp_rank(
    rank_of_a_job: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "tp_size", lambda: 1)

    rank_of_a_job.save({}, str(tmp_path / "one.pt"))

    assert files(tmp_path) == ["one.pt_6"]


@pytest.mark.parametrize("name", ["state_1_2_3", "state_1_2", "state_6"])
def test_load_finds_every_name(rank_of_a_job: ModuleType, tmp_path: Path, name: str) -> None:
    torch.save({"name": name}, tmp_path / name)

    assert rank_of_a_job.load(str(tmp_path / "state")) == {"name": name}


def test_back_compat_means_the_one_part_name(rank_of_a_job: ModuleType, tmp_path: Path) -> None:
    torch.save("new", tmp_path / "state_1_2")
    torch.save("old", tmp_path / "state_6")

    assert rank_of_a_job.load(str(tmp_path / "state")) == "new"
    assert rank_of_a_job.load(str(tmp_path / "state"), back_compat=True) == "old"


def test_plain_torch_reads_the_file(smp: ModuleType, tmp_path: Path) -> None:
    smp.save({"weight": torch.ones(2)}, str(tmp_path / "w"), partial=False)

    assert torch.load(tmp_path / "w")["weight"].tolist() == [1, 1]


def test_what_is_missing_is_compared_with_what_is_there(
    rank_of_a_job: ModuleType, tmp_path: Path
) -> None:
    torch.save({}, tmp_path / "state_0")
    torch.save({}, tmp_path / "state_1")

    with pytest.raises(SMPCheckpointError) as caught:
        rank_of_a_job.load(str(tmp_path / "state"))

    text = str(caught.value)
    assert "finds no state_1_2_3 or state_1_2 or state_6" in text
    assert "pp_rank 1 of 2, tp_rank 2 of 4, rdp_rank 3 of 5" in text
    assert "There are state_0, state_1: <mp_rank>" in text


def test_an_empty_folder_and_no_folder_are_told_apart(smp: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SMPCheckpointError, match="nor any other file of that name"):
        smp.load(str(tmp_path / "state"))
    with pytest.raises(SMPCheckpointError, match="No such file or directory"):
        smp.load(str(tmp_path / "absent" / "state"))


def test_a_failed_save_leaves_nothing(smp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "state_0").mkdir()

    with pytest.raises(SMPCheckpointError, match="cannot write"):
        smp.save({}, str(tmp_path / "state"))

    assert files(tmp_path) == ["state_0"]


def test_a_broken_file_is_named(smp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "state_0").write_bytes(b"no archive")

    with pytest.raises(SMPCheckpointError, match=r"cannot read .*state_0"):
        smp.load(str(tmp_path / "state"))


class Counted(pickle.Pickler):
    """Counts how many of it were made."""

    made = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        Counted.made += 1  # torch derives from it
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize("keyword", ["pickle_module", "pickel_module"])
def test_pickle_module_may_be_spelled_as_it_is_documented(
    smp: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    monkeypatch.setattr(Counted, "made", 0)
    module = SimpleNamespace(**{**vars(pickle), "Pickler": Counted})

    smp.save({"epoch": 3}, str(tmp_path / "state"), **{keyword: module})

    assert Counted.made > 0
    assert smp.load(str(tmp_path / "state")) == {"epoch": 3}


def test_a_file_object_is_refused(smp: ModuleType) -> None:
    with pytest.raises(SMPCheckpointError, match="expected a file name"):
        smp.save({}, 3)
