# SPDX-License-Identifier: Apache-2.0
"""``smp.save_pretrained`` under every composition: the files that Transformers writes of the same
model, and their way back into any composition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from jobs import pretrained_jobs as jobs
from rank_pool import RankPool

LIMIT = 6000
BASE = {"ddp": True, "microbatches": 2}
SHARDED = {"sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}
PIPELINE, TENSOR = {"partitions": 2}, {"tensor_parallel_degree": 2}
WAYS = {
    "pipeline": (2, PIPELINE),
    "tensor": (2, TENSOR),
    "pipeline + tensor": (4, {**PIPELINE, **TENSOR}),
    "pipeline, two copies": (4, PIPELINE),
    "sharded": (2, SHARDED),
    "sharded, some persistent": (2, {**SHARDED, "sdp_param_persistence_threshold": 100}),
    "tensor + sharded": (4, {**TENSOR, **SHARDED}),
    "sharded, bf16": (2, {**SHARDED, "bf16": True}),
    "pipeline + tensor + optimizer, bf16": (
        4, {**PIPELINE, **TENSOR, "shard_optimizer_state": True, "bf16": True}
    ),
    "pipeline, fp16": (2, {**PIPELINE, "fp16": True}),
}  # fmt: skip


def settings(way: str) -> tuple[int, dict[str, Any]]:
    ranks, config = WAYS[way]
    return ranks, {**BASE, **config}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def plain_model(kind: str, state: dict[str, torch.Tensor]) -> Any:
    """One process's model with the values of the job's."""
    model = jobs.network(kind)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize(
    ("way", "kind"),
    [*((way, "gpt2") for way in WAYS), ("pipeline + tensor", "bert"), ("tensor", "llama"),
     ("sharded", "bert")],
)  # fmt: skip
def test_files_are_those_that_transformers_writes(
    pool: Any, tmp_path: Path, way: str, kind: str
) -> None:
    ranks, config = settings(way)

    results = pool(ranks).run(
        "pretrained_jobs:train_and_save", config, kind, str(tmp_path / "ours"), LIMIT
    )

    model = plain_model(kind, results[0]["state"])
    model.save_pretrained(tmp_path / "theirs", max_shard_size=LIMIT)
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
    assert len(list((tmp_path / "ours").glob("model-*"))) > 2
    again = type(model).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(jobs.tokens(0)).logits, model(jobs.tokens(0)).logits)
    # A tensor in parts and what they make; with shards the values of one unit.
    most = 2 * max(seen["largest_tensor"] for seen in results)
    if "sharded" in way:
        most += max(seen["largest_unit"] for seen in results)
    assert all(seen["gathered"] <= most for seen in results)


def test_from_pretrained_of_the_auto_class_reads_the_folder(pool: Any, tmp_path: Path) -> None:
    ranks, config = settings("pipeline + tensor")

    results = pool(ranks).run(
        "pretrained_jobs:train_and_save", config, "gpt2", str(tmp_path), "5GB"
    )

    assert sorted(contents(tmp_path)) == [
        "config.json", "generation_config.json", "model.safetensors",
    ]  # fmt: skip
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(read).__name__ == "GPT2LMHeadModel"
    with torch.no_grad():
        expected = plain_model("gpt2", results[0]["state"])(jobs.tokens(0)).logits
        assert torch.equal(read(jobs.tokens(0)).logits, expected)


@pytest.mark.parametrize(
    ("way", "delayed"), [*((way, False) for way in WAYS), ("pipeline + tensor", True)]
)
def test_any_composition_goes_on_from_files_of_others(
    pool: Any, tmp_path: Path, way: str, delayed: bool
) -> None:
    model = jobs.network("gpt2")
    model.save_pretrained(tmp_path, max_shard_size=LIMIT)
    ranks, config = settings(way)

    results = pool(ranks).run(
        "pretrained_jobs:resume_and_look", config, "gpt2", str(tmp_path), delayed=delayed
    )

    for seen in results:
        for name, value in model.state_dict().items():
            assert torch.equal(seen["state"][name], value.to(seen["state"][name].dtype)), name
        assert seen["taken"] == seen["local"], "only what this rank has"


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_model_that_is_read_loses_as_the_one_that_was_saved(
    pool: Any, tmp_path: Path, kind: str
) -> None:
    ranks, config = settings("pipeline + tensor")
    jobs.network(kind).save_pretrained(tmp_path, max_shard_size=LIMIT)

    made = pool(ranks).run("pretrained_jobs:loss_of", config, kind, None)
    read = pool(ranks).run("pretrained_jobs:loss_of", config, kind, str(tmp_path))

    assert read == made


def test_delayed_parameters_are_saved_once_they_have_values(pool: Any, tmp_path: Path) -> None:
    ranks, config = settings("pipeline + tensor")

    errors = pool(ranks).run(
        "pretrained_jobs:before_the_first_step", config, str(tmp_path), delayed=True
    )
    results = pool(ranks).run(
        "pretrained_jobs:train_and_save", config, "gpt2", str(tmp_path / "ours"), LIMIT,
        delayed=True,
    )  # fmt: skip

    assert all("parameters are delayed" in error for error in errors)
    plain_model("gpt2", results[0]["state"]).save_pretrained(
        tmp_path / "theirs", max_shard_size=LIMIT
    )
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")


def test_a_model_without_a_partition_yet_is_saved_as_it_was_made(pool: Any, tmp_path: Path) -> None:
    ranks, config = settings("pipeline + tensor")

    pool(ranks).run("pretrained_jobs:before_the_first_step", config, str(tmp_path / "a"), False)

    jobs.network("gpt2").save_pretrained(tmp_path / "b", max_shard_size=LIMIT)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_ranks_with_other_sizes_are_told(pool: Any, tmp_path: Path) -> None:
    for error in pool(2).run("pretrained_jobs:other_sizes", {**BASE, **PIPELINE}, str(tmp_path)):
        assert "max_shard_size is 1000 bytes on rank 0 and 1001 on rank 1" in error


def test_a_save_that_fails_on_rank_0_fails_on_all_and_leaves_the_old_model(
    pool: Any, tmp_path: Path
) -> None:
    ranks, config = settings("pipeline + tensor")
    folder = str(tmp_path / "model")

    results = pool(ranks).run("pretrained_jobs:fail_in_a_shard", config, folder, "error")

    before = pool(ranks).run("pretrained_jobs:saved_after_one_step", config, str(tmp_path / "one"))
    assert before
    for rank, (error, left) in enumerate(results):
        where = "smp.save_pretrained failed on rank 0: " if rank else ""
        assert error == f"{where}the disk is full"
        assert left == sorted(contents(tmp_path / "one"))
    assert contents(tmp_path / "model") == contents(tmp_path / "one")


def test_a_save_that_is_killed_leaves_the_old_model(pool: Any, tmp_path: Path) -> None:
    config = {**BASE, **PIPELINE}
    folder = tmp_path / "model"
    doomed = RankPool(2, {"SMP_TIMEOUT_SECONDS": "20"})
    try:
        doomed.start("pretrained_jobs:fail_in_a_shard", config, str(folder), "killed")
        assert "died" in doomed.outcome(0).error
    finally:
        doomed.close()

    pool(2).run("pretrained_jobs:saved_after_one_step", config, str(tmp_path / "one"))
    left = {path.name for path in folder.iterdir()}
    (staging,) = [name for name in left if name.endswith(".staging")]
    (folder / staging).rename(tmp_path / "staged")
    assert contents(folder) == contents(tmp_path / "one")
    (tmp_path / "staged").rename(folder / staging)
    pool(2).run("pretrained_jobs:saved_after_one_step", config, str(folder))
    assert contents(folder) == contents(tmp_path / "one")
