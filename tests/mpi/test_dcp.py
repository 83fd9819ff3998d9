# SPDX-License-Identifier: Apache-2.0
"""``smp.save_dcp`` and ``smp.load_dcp`` under every composition, and against a plain script with
FSDP2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from jobs import pretrained_jobs
from smdistributed.modelparallel.checkpoint import convert
from smdistributed.modelparallel.torch._files.dcp_entries import DcpEntries
from smdistributed.modelparallel.torch._files.safetensors_file import mapped_tensors
from test_pretrained import PIPELINE, TENSOR, WAYS, settings

SCRIPT = Path(__file__).with_name("jobs") / "fsdp2_script.py"
ALL = settings("pipeline + tensor")


def save(pool: Any, way: str, kind: str, folder: Path, **keys: str) -> list[dict[str, int]]:
    ranks, config = settings(way)
    results: list[dict[str, int]] = pool(ranks).run(
        "dcp_jobs:save", config, kind, str(folder), **keys
    )
    return results


def assert_equal(one: Any, other: Any, place: str = "") -> None:
    """To the bit, within dictionaries and lists."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_equal(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{place}.{number}")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, place
        assert torch.equal(one, other), place
    else:
        assert one == other, place


@pytest.mark.parametrize(
    ("saved", "loaded", "kind", "late"),  # late: after a first step
    [*((way, "pipeline + tensor", "gpt2", number % 2 == 0) for number, way in enumerate(WAYS)),
     *(("pipeline + tensor", way, "gpt2", number % 2 == 1) for number, way in enumerate(WAYS)),
     ("pipeline + tensor", "sharded", "bert", False),
     ("tensor + sharded", "pipeline", "llama", True)],
)  # fmt: skip
def test_a_job_goes_on_as_from_its_own_checkpoint(
    pool: Any, tmp_path: Path, saved: str, loaded: str, kind: str, late: bool
) -> None:
    results = save(pool, saved, kind, tmp_path)
    ranks, config = settings(loaded)

    own, theirs = (
        pool(ranks).run("dcp_jobs:go_on", config, kind, str(tmp_path), dcp, late=late)
        for dcp in (False, True)
    )

    assert_equal(theirs, own)
    # A value in parts and what they make; with shards the values of a unit, of each mapping.
    most = 2 * max(seen["largest_tensor"] for seen in results)
    most += 2 * max(seen["largest_unit"] for seen in results)
    assert all(seen["gathered"] <= most for seen in results)


def entries(folder: Path) -> dict[str, Any]:
    return dict(DcpEntries(folder))


@pytest.mark.parametrize(
    ("way", "kind"), [*((way, "gpt2") for way in WAYS), ("pipeline + tensor", "bert")]
)
def test_parts_are_converted_to_what_the_job_would_have_saved(
    pool: Any, tmp_path: Path, way: str, kind: str
) -> None:
    save(pool, way, kind, tmp_path)
    tensors = {name: value for name, value in entries(tmp_path / "dcp").items()
               if name.startswith("model.")}  # fmt: skip

    convert(tmp_path, tmp_path / "made", "dcp")
    convert(tmp_path, tmp_path / "from_parts", "huggingface", max_shard_size=6000)
    convert(tmp_path / "dcp", tmp_path / "from_dcp", "huggingface", max_shard_size=6000)
    convert(tmp_path / "from_parts", tmp_path / "back", "dcp")

    assert_equal(entries(tmp_path / "made"), entries(tmp_path / "dcp"))
    assert len(list((tmp_path / "from_parts").glob("*.safetensors"))) > 2
    for folder in ("from_parts", "from_dcp"):
        files = (tmp_path / folder).glob("*.safetensors")
        held = {f"model.{n}": value for file in files for n, value in mapped_tensors(file).items()}
        assert_equal(held, {name: tensors[name] for name in held})
        tied = {"model.lm_head.weight", "model.cls.predictions.decoder.weight",
                "model.cls.predictions.decoder.bias"}  # fmt: skip
        assert tensors.keys() - held.keys() <= tied
    back = entries(tmp_path / "back")
    assert_equal(back, {name: tensors[name] for name in back})


@pytest.mark.parametrize("flat", ["nested", "flat"])
@pytest.mark.parametrize("way", ["pipeline + tensor", "sharded, bf16"])
def test_a_plain_script_with_fsdp2_goes_on_and_back(
    pool: Any, tmp_path: Path, way: str, flat: str
) -> None:
    ranks, config = settings(way)
    save(pool, way, "gpt2", tmp_path)
    plain = pretrained_jobs.network("gpt2")
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.5)
    state = {"model": plain.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path / "dcp")
    plain.load_state_dict(state["model"])
    assert_equal(
        {name: value for name, value in entries(tmp_path / "dcp").items()
         if name.startswith("model.")},
        {f"model.{name}": value for name, value in state["model"].items()},
    )  # fmt: skip

    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         SCRIPT, tmp_path / "dcp", tmp_path / "theirs", tmp_path / "result", flat],
        check=True, timeout=300,
    )  # fmt: skip

    result = torch.load(tmp_path / "result")
    assert result["lr"] == 0.01
    assert_equal(dict(result["loaded"]), dict(plain.state_dict()))
    ids = torch.arange(14).reshape(2, 7)
    plain.eval()
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, result["logits"])
    # What it saved, and what one process makes of the same state.
    before = entries(tmp_path / "dcp")
    names = {parameter: name for name, parameter in plain.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        group["lr"] = before[f"optimizer.param_groups.{number}.lr"]
    for parameter, name in names.items():
        optimizer.state[parameter] = {
            key: before[f"optimizer.state.{name}.{key}"].clone()
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
    plain(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert_equal(dict(result["after"]), dict(plain.state_dict()))

    losses = pool(ranks).run(
        "dcp_jobs:again", config, "gpt2", str(tmp_path / "theirs"), str(tmp_path / "ours")
    )

    theirs, ours = entries(tmp_path / "theirs"), entries(tmp_path / "ours")
    assert_equal({name: ours[name] for name in theirs}, theirs)
    with torch.no_grad():
        ids = pretrained_jobs.tokens(pretrained_jobs.STEPS)
        expected = plain(input_ids=ids, labels=ids).loss.item()
    mean = sum(losses) / len(losses)
    assert mean == pytest.approx(expected, rel=1e-5 if "bf16" not in way else 0.02)


def test_keys_are_where_the_reader_has_them(pool: Any, tmp_path: Path) -> None:
    for name, model, optimizer in (("app", "app.model", "app.optim"), ("top", "", "optimizer")):
        save(
            pool, "pipeline + tensor", "gpt2", tmp_path / name,
            model_key=model, optimizer_key=optimizer,
        )  # fmt: skip

    app, top = entries(tmp_path / "app/dcp"), entries(tmp_path / "top/dcp")

    assert "app.model.transformer.wte.weight" in app
    assert "app.optim.state.transformer.wte.weight.exp_avg" in app
    assert "lm_head.weight" in top
    ranks, config = settings("pipeline")
    for name in ("app", "top"):
        theirs, own = (
            pool(ranks).run("dcp_jobs:go_on", config, "gpt2", str(tmp_path / name), dcp)
            for dcp in (True, False)
        )
        assert_equal(theirs, own)


def test_what_does_not_fit_is_named_on_all_ranks(pool: Any, tmp_path: Path) -> None:
    save(pool, "pipeline + tensor", "gpt2", tmp_path)
    folder = tmp_path / "dcp"

    def errors(kind: str, **given: Any) -> set[str]:
        run = pool(ALL[0]).run("dcp_jobs:refused", ALL[1], kind, str(folder), **given)
        return {error.removeprefix("smp.load_dcp failed on rank 0: ") for error in run}

    (other,) = errors("llama")
    assert "is of another model: parameter " in other
    (key,) = errors("gpt2", optimizer_key="optim")
    assert "has no state of an optimizer: nothing in it is below optim.param_groups" in key
    data = (folder / "__0_0.distcp").read_bytes()
    (folder / "__0_0.distcp").write_bytes(data[:-1])
    (cut,) = errors("gpt2")
    assert "__0_0.distcp is cut off" in cut
    (folder / "__0_0.distcp").write_bytes(data[:-3000] + bytes(10) + data[-2990:])
    (damaged,) = errors("gpt2")
    assert "__0_0.distcp is damaged" in damaged
    (folder / ".metadata").unlink()
    (gone,) = errors("gpt2")
    assert "there is no checkpoint of torch.distributed.checkpoint" in gone


def test_a_save_that_fails_on_rank_0_fails_on_all_and_leaves_the_old_one(
    pool: Any, tmp_path: Path
) -> None:
    config = {**settings("pipeline")[1], **PIPELINE, **TENSOR}

    results = pool(4).run("dcp_jobs:fail", config, str(tmp_path / "model"))

    for error, verdict in results:
        assert "the disk is full" in error
        assert verdict.endswith(": whole")
