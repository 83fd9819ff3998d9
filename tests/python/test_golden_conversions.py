# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that versions of the library wrote, of scripts and of C++ programs, converted by this
one: every value, and what Transformers makes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from smdistributed.modelparallel.checkpoint import convert
from smdistributed.modelparallel.torch._files.safetensors_file import mapped_tensors
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch import nn

DATA = Path(__file__).parents[1] / "golden_checkpoints"
HUGGING_FACE = sorted(DATA.glob("*/hf_*.json"))
#: Their modules were replaced, and nothing says of what class they had been.
NAMELESS = {"tensor", "replaced", "pipeline_tensor", "bf16_tensor", "tensor_optimizer",
            "tensor_sharded", "whole_tensor"}  # fmt: skip
OTHERS = sorted(set(DATA.glob("*/*.json")) - set(HUGGING_FACE))
TIED = {"5.weight": "4.weight"}


def name_of(form: Path) -> str:
    return f"{form.parent.name}-{form.stem}"


def unpack(form: Path, folder: Path) -> dict[str, Any]:
    shutil.unpack_archive(form.with_suffix(".tar.xz"), folder)
    expected: dict[str, Any] = json.loads(form.read_text())
    return expected


def numbers(value: Any) -> Any:
    """As the files of what is expected have them."""
    if isinstance(value, torch.Tensor):
        return numbers(value.tolist())
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def source_of(folder: Path) -> Path:
    """The checkpoint in parts, the whole model, or the folder of Hugging Face."""
    names = ("golden_partial", "golden")
    return next((folder / name for name in names if (folder / name).exists()), folder)


# --- Models of Hugging Face ---


def network(kind: str, values: dict[str, Any]) -> Any:
    sizes = {"vocab_size": 8, "bos_token_id": 0, "eos_token_id": 0}
    config: Any
    if kind == "gpt2":
        config = transformers.GPT2Config(n_positions=4, n_embd=4, n_layer=1, n_head=2, **sizes)
        model: nn.Module = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=4, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=4, **sizes,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({name: torch.tensor(one) for name, one in values.items()})
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(torch.tensor([[1, 2, 3, 4]])).logits
    return found


@pytest.mark.parametrize("to", ["huggingface", "v2"])
@pytest.mark.parametrize("form", HUGGING_FACE, ids=name_of)
def test_transformers_reads_each_form_with_all_keys(form: Path, to: str, tmp_path: Path) -> None:
    expected = unpack(form, tmp_path / "from")
    model = network(expected["kind"], expected["model"])
    config = tmp_path / "config"
    model.config.save_pretrained(config)
    source = source_of(tmp_path / "from")

    told = convert(source, tmp_path / "to", to, config=config, max_shard_size=300)

    folder = tmp_path / "to" / ("pretrained" if to == "v2" else "")
    read, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.equal(logits(read), logits(model))
    assert (folder / "model.safetensors.index.json").exists()
    if to == "v2":
        assert (tmp_path / "to/sharded").exists() == (source.name == "golden_partial"), told


@pytest.mark.parametrize("form", ["hf_gpt2", "hf_gpt2_split_names"])
def test_what_says_not_what_it_was_asks_for_the_config(form: str, tmp_path: Path) -> None:
    unpack(DATA / "b4d4d493" / f"{form}.json", tmp_path)
    source = source_of(tmp_path)

    for to in ("huggingface", "v2"):
        with pytest.raises(SMPCheckpointError, match=r"config\.json") as error:
            convert(source, tmp_path / "to", to)
        assert not (tmp_path / "to").exists(), str(error.value)


def test_a_config_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    expected = unpack(DATA / "b4d4d493/hf_gpt2_whole.json", tmp_path)
    config = network("gpt2", expected["model"]).config

    def refusal(**changed: Any) -> str:
        config.update(changed)
        config.save_pretrained(tmp_path / "config")
        with pytest.raises(SMPCheckpointError) as error:
            convert(tmp_path / "golden", tmp_path / "to", "huggingface", config=tmp_path / "config")
        assert not (tmp_path / "to").exists()
        return str(error.value)

    assert "is of a GPT2LMHeadModel, and the checkpoint is not: it lacks transformer.h.1." in (
        refusal(n_layer=2)
    )
    assert "it has transformer.h.0." in refusal(n_layer=0)
    text = refusal(n_layer=1, n_positions=8)
    assert "transformer.wpe.weight has shape (4, 4); expected (8, 4)" in text


def test_values_that_the_config_ties_have_to_be_the_same(tmp_path: Path) -> None:
    model = network("gpt2", unpack(DATA / "b4d4d493/hf_gpt2_whole.json", tmp_path)["model"])
    model.config.save_pretrained(tmp_path)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save(state, tmp_path / "model.pt")

    convert(tmp_path / "model.pt", tmp_path / "to", "huggingface")
    state["lm_head.weight"][0, 0] += 1
    torch.save(state, tmp_path / "model.pt")

    assert "lm_head.weight" not in mapped_tensors(tmp_path / "to/model.safetensors")
    with pytest.raises(SMPCheckpointError, match="are one parameter in the GPT2LMHeadModel"):
        convert(tmp_path / "model.pt", tmp_path / "to", "huggingface")


# --- Other models, in all forms ---


@pytest.mark.parametrize("form", OTHERS, ids=name_of)
def test_safetensors_of_each_form_have_the_values_of_the_job(form: Path, tmp_path: Path) -> None:
    expected = unpack(form, tmp_path / "from")
    truth = {name: expected["masters"].get(TIED.get(name, name), value)
             for name, value in expected["model"].items()}  # fmt: skip
    source = source_of(tmp_path / "from")
    if form.stem in NAMELESS and form.stem != "whole_tensor":
        with pytest.raises(SMPCheckpointError, match=r"tensor_parallel_degree 2|of what class"):
            convert(source, tmp_path / "to", "huggingface")
        return

    told = convert(source, tmp_path / "to", "huggingface")

    held = mapped_tensors(tmp_path / "to/model.safetensors")
    assert truth.keys() - held.keys() <= TIED.keys()
    for name, value in held.items():
        # Files of C++ did not say that a parameter has another name: its 16 bits are there by that.
        wanted = torch.tensor(truth[name]).to(value.dtype) if name in TIED else truth[name]
        assert numbers(value) == numbers(wanted), name
    assert "without config.json, which from_pretrained needs: give it by --config" in told
    with pytest.raises(SMPCheckpointError, match=r"has no config\.json, which from_pretrained"):
        convert(source, tmp_path / "to", "v2")
