# SPDX-License-Identifier: Apache-2.0
"""``convert --to v2`` and ``--to huggingface`` of what jobs of v1 have saved: Transformers reads
the model with all of its keys, and scripts of SMP v2 go on with the optimizer, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from jobs import pretrained_jobs
from smdistributed.modelparallel.checkpoint import convert
from smdistributed.modelparallel.torch._files.dcp_entries import DcpEntries
from test_dcp import assert_equal, entries
from test_pretrained import plain_model, settings

STEPS, RATE = pretrained_jobs.STEPS, 0.005  # after the first step of the scheduler


def save(pool: Any, way: str, kind: str, folder: Path) -> dict[str, torch.Tensor]:
    ranks, config = settings(way)
    values: dict[str, torch.Tensor] = pool(ranks).run(
        "v2_conversion_jobs:save", config, kind, str(folder)
    )[0]
    return values


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(pretrained_jobs.tokens(0)).logits
    return found


def assert_reads(folder: Path, kind: str, values: dict[str, torch.Tensor]) -> None:
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(one.dtype == torch.float32 for one in model.parameters())  # scripts of v2 ask that
    assert torch.equal(logits_of(model), logits_of(plain_model(kind, values)))


@pytest.mark.parametrize(
    ("way", "kind"), [("pipeline + tensor", "gpt2"), ("tensor + sharded", "llama")]
)
def test_transformers_reads_what_was_made_of_each_checkpoint(
    pool: Any, tmp_path: Path, way: str, kind: str
) -> None:
    values = save(pool, way, kind, tmp_path)
    config = tmp_path / "parts_partial"

    for source, given in (("parts_partial", None), ("whole", config), ("split", config),
                          ("dcp", config)):  # fmt: skip
        target = tmp_path / f"from_{source}"
        convert(tmp_path / source, target, "huggingface", max_shard_size=6000, config=given)
        assert len(list(target.glob("model-*.safetensors"))) > 2
        assert_reads(target, kind, values)
        told = convert(tmp_path / source, target, "v2", config=given)
        assert_reads(target / "pretrained", kind, values)
        assert (target / "sharded").exists() == (source == "parts_partial"), told


@pytest.mark.parametrize(
    ("way", "kind", "how", "ranks", "degree", "orig_params"),
    [
        ("pipeline + tensor", "gpt2", "published", 2, 2, True),
        ("pipeline + tensor", "gpt2", "asynchronous", 4, 2, False),
        ("tensor + sharded", "llama", "published", 4, 4, True),
        ("sharded, bf16", "gpt2", "published", 4, 2, True),
    ],
)
def test_a_script_of_v2_goes_on_as_one_process_does(
    pool: Any, tmp_path: Path, way: str, kind: str, how: str, ranks: int, degree: int,
    orig_params: bool,
) -> None:  # fmt: skip
    save(pool, way, kind, tmp_path)
    told = convert(tmp_path, tmp_path / "v2", "v2")

    results = pool(ranks).run(
        "v2_conversion_jobs:go_on", {}, str(tmp_path / "v2"), how, degree, orig_params
    )

    assert "sharded has the optimizer's state, model_config, scheduler, total_steps" in told
    assert "left behind: model of the user content" in told
    before = entries(tmp_path / "dcp")
    made = DcpEntries(tmp_path / "v2/sharded")
    assert_equal({name: made[name] for name in before}, before)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "v2/pretrained")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: before[f"optimizer.state.{name}.{key}"].clone()
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
    ids = pretrained_jobs.tokens(STEPS)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    for rate, theirs, values in results:
        assert (rate, theirs) == (RATE, loss.item())
        assert_equal(values, dict(model.state_dict()))
