# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sharded and 16-bit state: any job goes on from any other's, bit by bit."""

import shutil

import pytest
import torch
from jobs import sharding_jobs as jobs
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_full_state_dict_from_sharded_data_parallel_checkpoint,
)

BASE = {"ddp": True, "auto_partition": False, "default_partition": 0,
        "deterministic_server": True, **jobs.ALL_SHARDED, **jobs.NO_CLIP}  # fmt: skip


def settings(degree: int = 1, **others):
    return {**BASE, "sharded_data_parallel_degree": degree, **others}


#: Ranks and settings; all train on the batches of two replicas.
WAYS = {
    "plain": (2, settings()),
    "sharded": (2, settings(2)),
    "biases persistent": (2, settings(2, sdp_param_persistence_threshold=7)),
    "all persistent": (2, {key: value for key, value in settings(2).items()
                           if key not in jobs.ALL_SHARDED}),  # the default: a million elements
    "optimizer": (2, settings(shard_optimizer_state=True)),
    "pipeline": (4, settings(partitions=2, shard_optimizer_state=True)),
}  # fmt: skip


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        if name != "seen":
            assert torch.equal(value, right[name]), name


def assert_same_state(left, right):
    assert left["state"].keys() == right["state"].keys()
    for index, held in left["state"].items():
        for key, value in held.items():
            assert torch.equal(value, right["state"][index][key]), (index, key)


@pytest.fixture(scope="module")
def saved(pool, tmp_path_factory):
    """Folders, and how the jobs that wrote them went on; made when asked for."""
    made = {}

    def by(way, kind, **extra):
        key = (way, kind, *extra.items())
        if key not in made:
            ranks, config = WAYS[way]
            folder = tmp_path_factory.mktemp(way)
            made[key] = (
                folder,
                pool(ranks).run(
                    "saving_jobs:save_after", {**config, **extra}, str(folder), kind, 2, 2
                )[0],
            )
        return made[key]

    return by


@pytest.mark.parametrize("after", WAYS)
@pytest.mark.parametrize("before", WAYS)
def test_every_way_of_training_goes_on_from_every_other(pool, saved, before, after):
    folder, (wanted, wanted_state, *_) = saved(before, "short")
    ranks, config = WAYS[after]

    results = pool(ranks).run("saving_jobs:resume_after", config, str(folder), "short", 2)

    for state, optimizer_state in results:
        assert_same(state, wanted)
        assert_same_state(optimizer_state, wanted_state)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_saves_while_it_goes_on(pool, saved, tmp_path, way):
    ranks, config = WAYS[way]

    pool(ranks).run("saving_jobs:save_after", config, str(tmp_path), "short", 2, 2, blocking=False)

    folder, _ = saved(way, "short")
    files = sorted(file.relative_to(folder) for file in folder.glob("*_partial/*.pt"))
    assert len(files) > 2
    for file in files:
        assert str(torch.load(tmp_path / file)) == str(torch.load(folder / file)), file


@pytest.mark.parametrize("after", ["plain", "sharded", "optimizer"])
@pytest.mark.parametrize("before", ["plain", "sharded", "optimizer"])
def test_counters_of_parameters_without_a_dimension_stay_counters(pool, tmp_path, before, after):
    ranks, config = WAYS[before]
    saved = pool(ranks).run(
        "saving_jobs:save_after", config, str(tmp_path), "scaled", 1, 0, inner="adamw"
    )
    ranks, config = WAYS[after]

    results = pool(ranks).run(
        "saving_jobs:resume_after", config, str(tmp_path), "scaled", 0, inner="adamw"
    )

    *_, wanted = saved[0]
    for _, optimizer_state in results:
        assert_same_state(optimizer_state, wanted)


def test_shards_go_on_under_another_degree(pool, tmp_path):
    wanted, *_ = pool(4).run("saving_jobs:save_after", settings(4), str(tmp_path), "strange", 2, 2)[
        0
    ]

    for degree in (2, 1):
        config = settings(degree, shard_optimizer_state=degree == 1)
        for state, _ in pool(4).run(
            "saving_jobs:resume_after", config, str(tmp_path), "strange", 2, first=1
        ):
            assert_same(state, wanted)


@pytest.mark.parametrize("after", ["plain", "sharded", "optimizer"])
def test_the_model_goes_on_without_the_optimizer(pool, saved, after):
    folder, (_, _, wanted, _) = saved("sharded", "short")
    ranks, config = WAYS[after]

    results = pool(ranks).run("saving_jobs:resume_model", config, str(folder), "short")

    for state in results:
        assert_same(state, wanted)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("after", ["sharded", "optimizer", "pipeline"])
def test_16_bit_training_goes_on(pool, saved, after, precision):
    folder, (wanted, *_) = saved("sharded", "short", **{precision: True})
    ranks, config = WAYS[after]

    results = pool(ranks).run(
        "saving_jobs:resume_after", {**config, precision: True}, str(folder), "short", 2
    )

    for state, _ in results:
        assert_same(state, wanted)


@pytest.mark.parametrize("after", ["sharded", "optimizer"])
def test_masters_and_loss_scale_come_back_without_the_optimizers_state(pool, saved, after):
    folder, (_, _, model_then, optimizer_then) = saved("sharded", "short", fp16=True)
    ranks, config = WAYS[after]

    results = pool(ranks).run("saving_jobs:resume_masters", {**config, "fp16": True}, str(folder))

    for model_now, optimizer_now, loss_scale in results:
        assert_same(model_now, model_then)
        assert_same(optimizer_now["_smp_masters"], optimizer_then["_smp_masters"])
        assert optimizer_then["state"] and not optimizer_now["state"]
        assert optimizer_now["param_groups"][0]["lr"] == 7
        assert loss_scale == 1.0


@pytest.mark.parametrize(("ranks", "config"), [
    *WAYS.values(), (4, settings(2)), (4, settings(2, sdp_param_persistence_threshold=7)),
    (4, settings(4)), (4, settings(shard_optimizer_state=True)),
], ids=str)  # fmt: skip
def test_adam_goes_on_bit_by_bit_under_the_same_degree(pool, tmp_path, ranks, config):
    kind = "short" if "partitions" in config else "chain"
    before = pool(ranks).run(
        "saving_jobs:save_after", config, str(tmp_path), kind, 3, 3, inner="adamw"
    )

    after = pool(ranks).run(
        "saving_jobs:resume_after", config, str(tmp_path), kind, 3, first=1, inner="adamw"
    )

    for (state, optimizer_state), (wanted, wanted_state, then, _) in zip(
        after, before, strict=True
    ):
        assert_same(state, wanted)
        assert_same_state(optimizer_state, wanted_state)
        assert all(not torch.equal(wanted[name], value) for name, value in then.items())


@pytest.mark.parametrize(
    ("spoiled", "scales"),
    [
        # Four good steps double the scale: three before the checkpoint, the fourth after it.
        ([], [128, 128, 128, 128, 256, 256]),
        # The second of two overflows halves the scale: one before the checkpoint, one after it.
        ([1, 4], [64, 32, 32, 32, 32, 64]),
    ],
    ids=str,
)
@pytest.mark.parametrize("after", ["sharded", "biases persistent", "all persistent", "optimizer"])
def test_a_dynamic_loss_scale_goes_on_where_it_was(pool, tmp_path, after, spoiled, scales):
    arguments = {"dynamic_loss_scale": True, "dynamic_loss_args": {
        "init_scale": 64, "scale_window": 4, "delayed_shift": 2}}  # fmt: skip
    ranks, config = WAYS["sharded"]
    before = pool(ranks).run("saving_jobs:save_scaled", {**config, "fp16": True}, str(tmp_path),
                             3, 6, spoiled, **arguments)  # fmt: skip
    ranks, config = WAYS[after]

    results = pool(ranks).run("saving_jobs:resume_scaled", {**config, "fp16": True}, str(tmp_path),
                              3, 6, spoiled, **arguments)  # fmt: skip

    for (found, state), (wanted, wanted_state) in zip(results, before, strict=True):
        assert found == wanted == scales
        assert_same(state["_smp_masters"], wanted_state["_smp_masters"])
        assert_same_state(state, wanted_state)


def test_files_are_those_of_the_published_layout(saved):
    folder, _ = saved("sharded", "short")

    assert sorted(path.name for path in (folder / "saved_partial").iterdir()) == [
        "manifest.json", "model_0.pt", "optimizer_0.pt", "optimizer_1.pt", "partition.json",
        "user_content.pt",
    ]  # fmt: skip
    part = torch.load(folder / "saved_partial" / "optimizer_1.pt")  # bare: plain containers
    assert part["partition_count"] == 2
    assert part["fp32_flat_groups"][0].dim() == 1
    assert "module" in torch.load(folder / "saved_partial" / "model_0.pt")


def read_as_published(folder):
    """The whole model as published helper scripts put it together: of each parameter of each group,
    one after the other, every file has ceil(elements / files) elements."""
    files = sorted(folder.glob("optimizer_*.pt"), key=lambda file: int(file.stem.split("_")[1]))
    parts = [torch.load(file) for file in files]
    assert {part["partition_count"] for part in parts} == {len(files)}
    flats = [torch.cat(part["fp32_flat_groups"]) for part in parts]
    content = torch.load(folder / "user_content.pt")
    module = torch.load(folder / "model_0.pt")["module"]
    whole = {name: module[name] for name in content["buffer_names"]}
    offset = 0
    for name, shape in (one for group in content["param_shapes"] for one in group.items()):
        length = -(-shape.numel() // len(files))
        runs = torch.cat([flat.narrow(0, offset, length) for flat in flats])
        assert not runs[shape.numel() :].any(), "padding is zero"
        whole[name] = runs[: shape.numel()].view(shape)
        offset += length
    assert {flat.numel() for flat in flats} == {offset}, "elements that are no parameter's"
    return whole


@pytest.mark.parametrize(("ranks", "degree", "others"), [
    (2, 2, {}), (4, 4, {}), (4, 2, {"sdp_param_persistence_threshold": 7}), (4, 4, {"bf16": True}),
], ids=str)  # fmt: skip
def test_published_helpers_read_the_flat_groups(pool, tmp_path, ranks, degree, others):
    results = pool(ranks).run("saving_jobs:save_for_published_helpers",
                              settings(degree, **others), str(tmp_path), 2)  # fmt: skip

    found = read_as_published(tmp_path / "saved_partial")

    whole, groups = results[0]
    assert [len(group) for group in groups] == [13, 9], "of the script's order, frozen ones too"
    aliases = {"last.weight"}  # the optimizer has it under its first name
    assert found.keys() == whole.keys() - aliases
    for name, value in found.items():
        assert torch.equal(value.to(whole[name].dtype), whole[name]), name
    again = get_full_state_dict_from_sharded_data_parallel_checkpoint(
        str(tmp_path), dtype=torch.float64
    )
    assert all(torch.equal(again[name], value.double()) for name, value in found.items())


@pytest.mark.parametrize("after", ["sharded", "plain", "optimizer", "pipeline"])
@pytest.mark.parametrize("before", ["sharded", "optimizer"])
def test_shards_of_the_first_format_go_on(pool, tmp_path, before, after):
    ranks, config = WAYS[before]
    wanted, wanted_state, *_ = pool(ranks).run(
        "saving_jobs:save_in_the_first_format", config, str(tmp_path), "short", 2, 2
    )[0]
    part = torch.load(next((tmp_path / "saved_partial").glob("optimizer_*0.pt")))
    assert "format" not in part
    ranks, config = WAYS[after]

    results = pool(ranks).run("saving_jobs:resume_after", config, str(tmp_path), "short", 2)

    for state, optimizer_state in results:
        assert_same(state, wanted)
        assert_same_state(optimizer_state, wanted_state)


def test_shards_of_a_later_format_are_refused_with_its_number(pool, saved, tmp_path):
    shutil.copytree(saved("sharded", "short")[0], tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "saved_partial"
    (folder / "manifest.json").unlink()  # it has checksums
    part = torch.load(folder / "optimizer_1.pt")
    torch.save({**part, "format": 3}, folder / "optimizer_1.pt")

    errors = pool(2).run(
        "saving_jobs:resume_after", settings(2), str(tmp_path), "short", 0, fails=True
    )

    assert all("has shards of format 3; this version reads formats 1 to 2" in e for e in errors)


def test_shards_become_a_whole_model_without_a_job(saved, tmp_path):
    folder, (_, _, whole, _) = saved("sharded", "short")

    found = get_full_state_dict_from_sharded_data_parallel_checkpoint(str(folder))

    assert_same(found, whole)
    with pytest.raises(SMPCheckpointError, match="is not there"):
        get_full_state_dict_from_sharded_data_parallel_checkpoint(str(tmp_path))


def test_a_whole_model_without_a_job_has_all_names_of_a_tied_parameter(saved):
    folder, (_, _, whole, _) = saved("sharded", "strange")

    found = get_full_state_dict_from_sharded_data_parallel_checkpoint(
        str(folder), dtype=torch.float64
    )

    assert_same(found, whole)
    assert found["last.weight"].data_ptr() == found["first.weight"].data_ptr()


def test_a_damaged_file_is_named_without_a_job(saved, tmp_path):
    shutil.copytree(saved("sharded", "short")[0], tmp_path, dirs_exist_ok=True)
    file = tmp_path / "saved_partial" / "optimizer_1.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    with pytest.raises(SMPCheckpointError, match=r"optimizer_1\.pt"):
        get_full_state_dict_from_sharded_data_parallel_checkpoint(str(tmp_path))


def test_a_checkpoint_without_shards_is_refused_without_a_job(saved):
    folder, _ = saved("optimizer", "short")

    with pytest.raises(SMPCheckpointError, match="holds no shards of parameters"):
        get_full_state_dict_from_sharded_data_parallel_checkpoint(str(folder))


def test_plain_pytorch_reads_the_whole_model(pool, tmp_path):
    results = pool(2).run(
        "saving_jobs:save_after", settings(2), str(tmp_path), "strange", 2, 0, partial=False
    )

    entries = torch.load(tmp_path / "saved")
    jobs.KINDS["strange"]().load_state_dict(entries)
    assert_same(entries, results[0][2])
    for state, _ in pool(2).run(
        "saving_jobs:resume_after", settings(2), str(tmp_path), "strange", 0, partial=False
    ):
        assert_same(state, entries)


@pytest.mark.parametrize("how", ["whole", "gathered", "own"])
@pytest.mark.parametrize("way", ["sharded", "optimizer"])
@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=str)
def test_state_dicts_of_optimizers_come_back(pool, way, how, precision):
    ranks, config = WAYS[way]

    results = pool(ranks).run("saving_jobs:state_dicts", {**config, **precision}, "short", how)

    for state, wanted in results:
        assert_same(state, wanted)


# --- Bad input ---


def test_another_models_checkpoint_is_refused_with_the_first_difference(pool, saved):
    folder, _ = saved("sharded", "short")

    errors = pool(2).run("saving_jobs:resume_another_model", settings(2), str(folder), fails=True)

    assert all("of another model: parameter blocks.0" in error for error in errors)


def test_missing_shards_are_named(pool, tmp_path):
    pool(2).run("saving_jobs:save_after", settings(2), str(tmp_path), "short", 1, 0)
    (tmp_path / "saved_partial" / "optimizer_1.pt").unlink()

    errors = pool(2).run(
        "saving_jobs:resume_after", settings(2), str(tmp_path), "short", 0, fails=True
    )

    assert all("the optimizer files of 1 of 2 ranks" in error for error in errors)
