# SPDX-License-Identifier: Apache-2.0
"""``python -m smdistributed.modelparallel.checkpoint convert``, and what it refuses."""

from __future__ import annotations

import json
import pickle
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import transformers
from smdistributed.modelparallel.checkpoint import convert, main
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch import nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex


def gpt2() -> Any:
    torch.manual_seed(7)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    )


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        values: torch.Tensor = model.eval()(torch.arange(8).unsqueeze(0)).logits
    return values


@pytest.fixture
def saved(smp: ModuleType, tmp_path: Path) -> Path:
    """A checkpoint in parts of a job."""
    model = smp.DistributedModel(gpt2())
    smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5))
    smp.save_checkpoint(str(tmp_path / "parts"), "first")
    smp.save_checkpoint(str(tmp_path / "parts"), "whole", partial=False)
    smp.save_checkpoint(
        str(tmp_path / "parts"), "last", user_content={"steps": 40, "optimizer": "SGD"}
    )
    return tmp_path / "parts"


@pytest.mark.parametrize("source", [".", "first_partial", "whole"])
def test_from_pretrained_reads_what_was_converted(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    gpt2().config.save_pretrained(tmp_path)

    code = main(["convert", str(saved / source), str(tmp_path / "made"), "--to", "huggingface",
                 "--max-shard-size", "2KB", "--config", str(tmp_path)])  # fmt: skip

    assert code == 0
    assert f"{tmp_path / 'made'}: 28 tensors of a " in capsys.readouterr().out
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "made")
    assert torch.equal(logits(read), logits(gpt2()))


def test_scripts_of_v2_find_what_they_read(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"

    code = main(["convert", str(saved), str(made), "--to", "v2", "--content", '{"epoch": 3}'])

    assert code == 0
    assert "; sharded has the optimizer's state, epoch, steps" in (told := capsys.readouterr().out)
    assert told.endswith("; left behind: optimizer of the user content\n")
    read = transformers.AutoModelForCausalLM.from_pretrained(made / "pretrained")
    assert torch.equal(logits(read), logits(gpt2()))
    content = {"model": gpt2().state_dict(), "optimizer": {"param_groups": [{"lr": 0.0}]},
               "epoch": 0, "steps": 0}  # fmt: skip
    wanted = {name: value.clone() for name, value in content["model"].items()}
    for value in content["model"].values():
        value.zero_()
    dcp.load(content, checkpoint_id=made / "sharded")
    assert all(torch.equal(value, wanted[name]) for name, value in content["model"].items())
    assert content["optimizer"] == {"param_groups": [{"lr": 0.5}]}
    assert (content["epoch"], content["steps"]) == (3, 40)


def test_v2_refuses_what_would_be_lost_or_left(saved: Path, tmp_path: Path) -> None:
    config = saved / "last_partial"
    text = refused(saved / "whole", tmp_path, to="v2", config=config, content={"epoch": 0})
    assert "got content epoch for sharded, which is not written" in text
    text = refused(saved, tmp_path, to="dcp", content={"epoch": 0})
    assert "got content, which dcp has no place for" in text
    convert(saved, tmp_path / "made", "v2")
    assert "has sharded of another checkpoint" in refused(
        saved / "whole", tmp_path, to="v2", config=config
    )


def test_an_optimizer_that_fsdp_cannot_shard_is_left_out_by_name(
    smp: ModuleType, tmp_path: Path
) -> None:
    model = smp.DistributedModel(gpt2())
    optimizer = smp.DistributedOptimizer(torch.optim.Adafactor(model.parameters()))
    sum(one.square().sum() for one in model.parameters()).backward()
    optimizer.step()
    smp.save_checkpoint(str(tmp_path / "parts"), "one")

    told = convert(tmp_path / "parts", tmp_path / "made", "v2")

    assert "; sharded is left out: the optimizer's " in told
    assert "has other shapes than its parameters" in told
    assert not (tmp_path / "made/sharded").exists()


@pytest.mark.parametrize("to", ["huggingface", "dcp"])
def test_a_model_is_not_in_memory_as_a_whole(smp: ModuleType, tmp_path: Path, to: str) -> None:
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(24)]  # of 4 MiB
    model = smp.DistributedModel(nn.Sequential(*layers))
    smp.save_checkpoint(str(tmp_path / "parts"), "one")
    del layers, model
    seen = [anonymous_bytes()]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.001):
            seen.append(anonymous_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        convert(tmp_path / "parts", tmp_path / "made", to, max_shard_size="9MB")
    finally:
        ended.set()
        watching.join()

    assert max(seen) - seen[0] < 32 * 2**20, "of 96"


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def test_what_others_wrote_is_converted_both_ways(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path / "theirs", max_shard_size="2KB")

    convert(tmp_path / "theirs", tmp_path / "dcp", "dcp", key="app.model")
    content = {"app": {"model": {name: torch.zeros_like(value)
                                 for name, value in model.state_dict().items()
                                 if name != "lm_head.weight"}}}  # fmt: skip
    dcp.load(content, checkpoint_id=tmp_path / "dcp")
    gpt2().config.save_pretrained(tmp_path / "dcp")
    convert(tmp_path / "dcp", tmp_path / "back", "huggingface")

    for name, value in content["app"]["model"].items():
        assert torch.equal(value, model.state_dict()[name]), name
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert torch.equal(logits(read), logits(model))


def test_a_model_at_the_top_is_found_beside_the_optimizer(tmp_path: Path) -> None:
    state = {"weight": torch.ones(2, 3), "optimizer": {
        "state": {"weight": {"exp_avg": torch.ones(2, 3)}},
        "param_groups": [{"lr": 0.1, "params": ["weight"]}]}}  # fmt: skip
    dcp.save(state, checkpoint_id=tmp_path / "dcp")

    text = convert(tmp_path / "dcp", tmp_path / "made", "huggingface")

    assert "1 tensors of a checkpoint of torch.distributed.checkpoint" in text


def refused(saved: Path, tmp_path: Path, **given: Any) -> str:
    (tmp_path / "made").mkdir(exist_ok=True)
    before = sorted((tmp_path / "made").rglob("*"))
    with pytest.raises(SMPCheckpointError) as error:
        convert(saved, tmp_path / "made", **{"to": "huggingface", **given})
    assert sorted((tmp_path / "made").rglob("*")) == before
    return str(error.value)


def test_damage_and_what_is_missing_is_named(saved: Path, tmp_path: Path) -> None:
    part = saved / "last_partial/model_0_0.pt"
    data = part.read_bytes()
    part.write_bytes(data[:-9])
    assert "model_0_0.pt" in refused(saved, tmp_path)
    part.unlink()
    assert "model_0_0.pt is missing" in refused(saved, tmp_path)
    assert "there is no checkpoint" in refused(tmp_path / "nowhere", tmp_path)
    (tmp_path / "empty").mkdir()
    assert "holds no checkpoint that can be converted" in refused(tmp_path / "empty", tmp_path)
    assert "expected 'dcp', 'huggingface' or 'v2'" in refused(saved / "whole", tmp_path, to="onnx")
    assert "is no config.json" in refused(saved / "whole", tmp_path, config=saved)


def test_neither_the_source_nor_anything_else_is_lost(saved: Path, tmp_path: Path) -> None:
    for source, target in ((saved, saved), (saved / "whole", saved)):
        with pytest.raises(SMPCheckpointError, match="where the source is; give another folder"):
            convert(source, target, "dcp")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/precious.txt").write_text("mine")
    assert "has precious.txt, which is no file of a checkpoint" in refused(
        saved, tmp_path, to="dcp"
    )
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SMPCheckpointError, match="is a file; expected a folder"):
        convert(saved, tmp_path / "file", "dcp")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_model_is_the_one_dictionary_with_tensors(tmp_path: Path) -> None:
    llama = {"model.layers.0.weight": torch.ones(2), "lm_head.weight": torch.ones(3)}
    dcp.save(llama, checkpoint_id=tmp_path / "top")
    dcp.save({"model": llama, "ema": llama}, checkpoint_id=tmp_path / "two")

    assert "2 tensors" in convert(tmp_path / "top", tmp_path / "hf", "huggingface")
    text = refused(tmp_path / "two", tmp_path)
    assert "tensors in several places, 'ema', 'model'; say by key which is the model" in text
    assert "2 tensors" in convert(tmp_path / "two", tmp_path / "hf", "huggingface", key="ema")


def test_pieces_that_meet_are_no_tensor(tmp_path: Path) -> None:
    dcp.save(
        {"a": torch.arange(4.0), "b": torch.ones(2), "c": torch.ones(2)}, checkpoint_id=tmp_path
    )
    metadata = dcp.FileSystemReader(tmp_path).read_metadata()
    boxes = [ChunkStorageMetadata(torch.Size([at]), torch.Size([2])) for at in (0, 1)]
    metadata.state_dict_metadata["a"].chunks = boxes
    places = metadata.storage_data
    for other, at in (("b", 0), ("c", 1)):
        (index,) = [one for one in places if one.fqn == other]
        places[MetadataIndex("a", torch.Size([at]))] = places[index]
    del places[next(one for one in places if one.fqn == "a" and one.index == 0)]
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))

    with pytest.raises(SMPCheckpointError, match=r"has two pieces of the same elements of a: from"):
        convert(tmp_path, tmp_path.parent / "made", "huggingface", key="")


def test_a_cut_file_of_dcp_is_named_and_a_key_that_is_not_there(tmp_path: Path) -> None:
    dcp.save({"model": nn.Linear(2, 2).state_dict()}, checkpoint_id=tmp_path / "dcp")
    assert "no tensor of a model below 'net.'" in refused(tmp_path / "dcp", tmp_path, key="net")
    file = tmp_path / "dcp/__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-20])
    assert "__0_0.distcp is cut off" in refused(tmp_path / "dcp", tmp_path)


def test_a_checkpoint_that_does_not_say_its_plain_names_is_refused(
    saved: Path, tmp_path: Path
) -> None:
    folder = saved / "last_partial"
    (folder / "manifest.json").unlink()  # it has checksums
    slices = {"format": 2, "axes": {}, "replaced": {"": "DistributedTransformerLMHead"}}
    (folder / "slices.json").write_text(json.dumps(slices))

    text = refused(folder, tmp_path)

    assert "of what class (root), now DistributedTransformerLMHead, had been" in text
    assert "smp.save_dcp or smp.save_pretrained" in text


def test_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1), "step": 3}, tmp_path / "model.pt")
    assert "holds step, which is no tensor" in refused(tmp_path / "model.pt", tmp_path)


def test_the_command_line_says_errors_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--to", "dcp"]) == 1
    assert capsys.readouterr().err == f"Error: there is no checkpoint {tmp_path / 'a'}\n"
