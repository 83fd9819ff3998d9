# SPDX-License-Identifier: Apache-2.0
"""Checkpoints over real processes: what was saved goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

BASE = {"ddp": True, "microbatches": 4, "deterministic_server": True}


def config(partitions: int):
    return {**BASE, "partitions": partitions}


@pytest.fixture(scope="module")
def saved(pool, tmp_path_factory):
    """Saved by two partitions after two steps, and how the job went on."""
    folder = tmp_path_factory.mktemp("saved")
    results = pool(2).run(
        "checkpoint_jobs:train_and_save", config(2), str(folder), partial=True, steps=2, more=2
    )
    return folder, results


def assert_same_state(left, right):
    assert left.keys() == right.keys()
    for key, value in left.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, right[key]), key


def assert_goes_on(saved_results, resumed):
    losses, parameters, optimizer = saved_results[0]
    for own_losses, own_parameters, own_optimizer, *_ in resumed:
        assert own_losses == losses
        assert_same_state(own_parameters, parameters)
        assert own_optimizer["state"].keys() == optimizer["state"].keys()
        for index, entry in optimizer["state"].items():
            assert_same_state(own_optimizer["state"][index], entry)


@pytest.mark.parametrize("partial", [True, False])
def test_a_save_in_the_background_is_the_same(pool, saved, tmp_path: Path, partial: bool):
    """Ranks train on at once, in other states than the one that is written."""
    results = pool(2).run(
        "checkpoint_jobs:train_and_save", config(2), str(tmp_path), partial=partial, steps=2,
        more=2, blocking=False,
    )  # fmt: skip

    folder, blocking = saved
    assert [losses for losses, *_ in results] == [losses for losses, *_ in blocking]
    if partial:
        for file in (folder / "step_2_partial").glob("*_[01]_0.pt"):
            left, right = torch.load(file), torch.load(tmp_path / "step_2_partial" / file.name)
            assert str(left) == str(right), file.name
        return
    assert_same_state(torch.load(tmp_path / "step_2"), read_whole(folder))


def read_whole(folder: Path):
    parts = [torch.load(file) for file in sorted((folder / "step_2_partial").glob("model_*.pt"))]
    return {name: value for part in parts for name, value in part.items()
            if isinstance(value, torch.Tensor)}  # fmt: skip


def test_files_are_those_of_the_documented_layout(saved):
    folder, _ = saved

    assert sorted(path.name for path in folder.iterdir()) == ["newest", "step_2_partial"]
    assert (folder / "newest").read_text() == "step_2_partial"
    assert sorted(path.name for path in (folder / "step_2_partial").iterdir()) == [
        "manifest.json",
        "model_0_0.pt",
        "model_1_0.pt",
        "optimizer_0_0.pt",
        "optimizer_1_0.pt",
        "partition.json",
        "user_content.pt",
    ]
    part = torch.load(folder / "step_2_partial" / "model_0_0.pt")
    assert part.pop("_smp_is_partial") is True
    assert all(isinstance(value, torch.Tensor) for value in part.values())
    manifest = json.loads((folder / "step_2_partial" / "manifest.json").read_text())
    assert manifest["degrees"] == {"pp": 2, "tp": 1, "rdp": 1}


@pytest.mark.parametrize(("ranks", "partitions"), [(2, 2), (4, 4), (1, 1)])
def test_job_goes_on_bit_by_bit_under_any_number_of_partitions(pool, saved, ranks, partitions):
    folder, results = saved

    resumed = pool(ranks).run(
        "checkpoint_jobs:resume_and_train", config(partitions), str(folder), partial=True, more=2
    )

    assert_goes_on(results, resumed)
    owned = [name for *_, local, _ in resumed for name in local]
    assert sorted(owned) == sorted(results[0][1]), "each parameter on one partition"
    assert [held for *_, held in resumed] == [len(local) for *_, local, _ in resumed], (
        "optimizer state for the own parameters only"
    )


def test_job_goes_on_with_more_replicas(pool, saved):
    folder, results = saved

    resumed = pool(4).run(
        "checkpoint_jobs:resume_and_train",
        {**config(2), "microbatches": 2},
        str(folder),
        partial=True,
        more=2,
    )

    for _, parameters, *_ in resumed:
        for name, value in results[0][1].items():
            # The same samples in other sums, two steps of AdamW with lr 0.01.
            torch.testing.assert_close(parameters[name], value, rtol=1e-3, atol=1e-4)
        assert_same_state(parameters, resumed[0][1])


def test_resuming_after_the_first_step_puts_the_parts_where_modules_are(pool, saved):
    folder, results = saved

    for losses in pool(2).run("checkpoint_jobs:resume_in_the_middle", config(2), str(folder)):
        assert losses == results[0][0]


def test_whole_model_is_read_by_plain_torch_and_by_any_split(pool, tmp_path: Path):
    results = pool(2).run(
        "checkpoint_jobs:train_and_save", config(2), str(tmp_path), partial=False, steps=2, more=0
    )

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "newest",
        "step_2",
        "step_2.manifest.json",
        "user_content_step_2",
    ]
    assert_same_state(torch.load(tmp_path / "step_2"), results[0][1])
    for ranks in (1, 4):
        resumed = pool(ranks).run(
            "checkpoint_jobs:resume_and_train", config(ranks), str(tmp_path), partial=False, more=0
        ) if ranks == 1 else pool(ranks).run(
            "checkpoint_jobs:resume_only", config(ranks), str(tmp_path), partial=False
        )  # fmt: skip
        if ranks == 1:
            assert_same_state(resumed[0][1], results[0][1])
        else:
            assert all(content["steps"] == 2 for content in resumed)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("how", ["object", "disk"])
def test_save_that_fails_on_one_rank_fails_on_all_and_leaves_the_old_one(
    pool, tmp_path: Path, how: str, blocking: bool
):
    results = pool(2).run(
        "checkpoint_jobs:fail_on_one_rank", config(2), str(tmp_path), how, blocking=blocking
    )

    for rank, (error, loaded, same, left) in enumerate(results):
        failed = 0 if how == "object" else 1
        cause = "cannot be pickled" if how == "object" else "File too large"
        assert cause in error
        if rank != failed:
            assert error.startswith(f"smp.save_checkpoint failed on rank {failed}:")
        assert loaded == {"steps": 1}
        assert same
        assert left == ["newest", "same_partial"]


def test_old_checkpoints_are_removed_when_asked(pool, tmp_path: Path):
    for names, newest in pool(2).run("checkpoint_jobs:keep_some", config(2), str(tmp_path)):
        assert names == ["newest", "step_2_partial", "step_3_partial"]
        assert newest == "step_3_partial"


def test_cpu_gathers_what_the_partitions_hold(pool):
    results = pool(2).run("checkpoint_jobs:gather_on_the_cpu", config(2))

    assert [same for same, _ in results] == [True, True]
    assert results[0][1] == results[1][1]


def refused(pool, folder: Path, ranks: int = 2, **arguments):
    return pool(ranks).run(
        "checkpoint_jobs:resume_only", config(ranks), str(folder), fails=True, **arguments
    )


def copy_of(saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


def test_damaged_part_is_named_on_all_ranks(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path)
    part = folder / "step_2_partial" / "model_1_0.pt"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)

    errors = refused(pool, folder)

    assert all("model_1_0.pt has checksum" in error for error in errors)
    assert "failed on rank 1" in errors[0]


def test_part_cut_short_is_named(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path)
    part = folder / "step_2_partial" / "optimizer_0_0.pt"
    part.write_bytes(part.read_bytes()[:-1])

    for error in refused(pool, folder):
        assert "optimizer_0_0.pt has" in error and "were written; it was cut short" in error


def test_missing_part_is_named(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path)
    (folder / "step_2_partial" / "model_1_0.pt").unlink()

    for error in refused(pool, folder):
        assert "model_1_0.pt is missing" in error and "a checkpoint of 2 partitions" in error


def test_broken_manifest_is_named(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path)
    (folder / "step_2_partial" / "manifest.json").write_text("{")

    assert all("manifest.json" in error for error in refused(pool, folder))


def test_broken_partition_is_named(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path) / "step_2_partial"
    (folder / "manifest.json").unlink()
    (folder / "partition.json").write_text("{")

    errors = refused(pool, folder.parent)

    assert all(f"{folder}/partition.json: it is no JSON (" in error for error in errors), errors


def test_absent_checkpoints_are_compared_with_those_that_are_there(pool, saved, tmp_path: Path):
    folder = copy_of(saved, tmp_path)

    assert all(
        "there is no checkpoint step_9_partial" in error and "step_2_partial" in error
        for error in refused(pool, folder, tag="step_9")
    )
    assert all("there is no checkpoint folder" in e for e in refused(pool, folder / "no", tag="x"))
    assert all("newest" in e and "is not there" in e for e in refused(pool, folder / "no"))
    assert all("give partial=True" in error for error in refused(pool, folder, partial=False))


def test_checkpoint_of_another_model_is_refused(pool, saved):
    folder, _ = saved

    for error in refused(pool, folder, depth=3):
        assert "SMPCheckpointError" in error
        assert f"{folder}/step_2_partial is of another model: parameter blocks.3." in error
    for error in refused(pool, folder, ranks=4, depth=5):
        assert "missing ['blocks.4.inner.bias'" in error


def test_saving_in_parts_before_the_partition_is_refused(pool, tmp_path: Path):
    errors = pool(2).run(
        "checkpoint_jobs:save_before_the_first_step", config(2), str(tmp_path), fails=True
    )

    assert all("needs the partition, which the first step makes" in error for error in errors)
    assert not list(tmp_path.iterdir())


def test_ranks_that_save_different_checkpoints_are_told(pool, tmp_path: Path):
    errors = pool(2).run(
        "checkpoint_jobs:save_different_tags", config(2), str(tmp_path), fails=True
    )

    assert all("rank 0 saves" in error and "rank 1" in error for error in errors)
