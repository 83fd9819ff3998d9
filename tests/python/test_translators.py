# SPDX-License-Identifier: Apache-2.0
"""State dicts of real Hugging Face models, under distributed names and back, bit by bit."""

from __future__ import annotations

import pytest
import torch
import transformers
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.nn.huggingface import (
    bert,
    gpt2,
    gptj,
    gptneo,
    gptneox,
    llama,
    roberta,
)
from torch import nn


def _gpt2(kind=transformers.GPT2LMHeadModel, **more):
    return kind(
        transformers.GPT2Config(
            vocab_size=23, n_positions=8, n_embd=12, n_layer=2, n_head=3, n_inner=20, **more
        )
    )


def _gptj(kind=transformers.GPTJForCausalLM):
    return kind(
        transformers.GPTJConfig(
            vocab_size=23, n_positions=8, n_embd=12, n_layer=2, n_head=3, rotary_dim=2
        )
    )


def _gptneo(kind=transformers.GPTNeoForCausalLM):
    return kind(
        transformers.GPTNeoConfig(
            vocab_size=23,
            max_position_embeddings=8,
            hidden_size=12,
            num_layers=2,
            num_heads=3,
            attention_types=[[["global", "local"], 1]],
            window_size=4,
        )
    )


def _gptneox(kind="ForCausalLM"):
    return getattr(transformers, f"GPTNeoX{kind}")(
        transformers.GPTNeoXConfig(
            vocab_size=23,
            max_position_embeddings=8,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
        )
    )


def _encoder(config, kind):
    return kind(
        config(
            vocab_size=23,
            max_position_embeddings=8,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
        )
    )


def _bert(kind=transformers.BertForMaskedLM):
    return _encoder(transformers.BertConfig, kind)


def _roberta(kind=transformers.RobertaForMaskedLM):
    return _encoder(transformers.RobertaConfig, kind)


def _llama(family="Llama", kind="ForCausalLM"):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=23,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return getattr(transformers, family + kind)(config)


_GPT2 = (
    gpt2.translate_hf_state_dict_to_smdistributed_gpt2,
    gpt2.translate_state_dict_to_hf_gpt2,
)
_GPTJ = (
    gptj.translate_hf_state_dict_to_smdistributed_gptj,
    gptj.translate_state_dict_to_hf_gptj,
)
_GPT_NEO = (
    gptneo.translate_hf_state_dict_to_smdistributed_gptneo,
    gptneo.translate_state_dict_to_hf_gptneo,
)
_GPT_NEOX = (
    gptneox.translate_hf_state_dict_to_smdistributed_gptneox,
    gptneox.translate_state_dict_to_hf_gptneox,
)
_LLAMA = (
    llama.translate_hf_state_dict_to_smdistributed_llama,
    llama.translate_state_dict_to_hf_llama,
)
_BERT = (
    bert.translate_hf_state_dict_to_smdistributed_bert,
    bert.translate_state_dict_to_hf_bert,
)
_ROBERTA = (
    roberta.translate_hf_state_dict_to_smdistributed_roberta,
    roberta.translate_state_dict_to_hf_roberta,
)
_MODELS = {
    "gpt2": (_gpt2, _GPT2),
    "gpt2 without head": (lambda: _gpt2(transformers.GPT2Model), _GPT2),
    "gpt2 with cross attention": (lambda: _gpt2(add_cross_attention=True), _GPT2),
    "gptj": (_gptj, _GPTJ),
    "gptj without head": (lambda: _gptj(transformers.GPTJModel), _GPTJ),
    "gptneo": (_gptneo, _GPT_NEO),
    "gptneo without head": (lambda: _gptneo(transformers.GPTNeoModel), _GPT_NEO),
    "gptneox": (_gptneox, _GPT_NEOX),
    "gptneox without head": (lambda: _gptneox("Model"), _GPT_NEOX),
    "llama": (_llama, _LLAMA),
    "llama without head": (lambda: _llama(kind="Model"), _LLAMA),
    "mistral": (lambda: _llama("Mistral"), _LLAMA),
    "qwen2": (lambda: _llama("Qwen2"), _LLAMA),
    "qwen3": (lambda: _llama("Qwen3"), _LLAMA),
    "gemma": (lambda: _llama("Gemma"), _LLAMA),
    "bert": (_bert, _BERT),
    "bert without head": (lambda: _bert(transformers.BertModel), _BERT),
    "bert for pretraining": (lambda: _bert(transformers.BertForPreTraining), _BERT),
    "roberta": (_roberta, _ROBERTA),
    "roberta for classes": (lambda: _roberta(transformers.RobertaForTokenClassification), _ROBERTA),
}


@pytest.mark.parametrize("name", _MODELS)
def test_a_state_dict_comes_back_as_it_was(name):
    make, (there, back) = _MODELS[name]
    plain = make().state_dict()
    before = {key: value.clone() for key, value in plain.items()}

    again = back(there(plain))

    assert again.keys() == before.keys()
    for key, value in before.items():
        assert torch.equal(again[key], value), key
        assert torch.equal(plain[key], value), key  # the given entries are not written to


@pytest.mark.parametrize("name", [name for name in _MODELS if "bert" not in name])
def test_no_name_of_a_causal_model_stays(name):
    make, (there, _) = _MODELS[name]
    plain = make().state_dict()

    split = there(plain)

    stayed = {"lm_head.weight", "lm_head.bias"}
    assert not (split.keys() & plain.keys()) - stayed


def test_only_encoders_of_bert_are_renamed():
    plain = _bert().state_dict()

    split = bert.translate_hf_state_dict_to_smdistributed_bert(plain)

    outside = {key for key in plain if ".encoder." not in key}
    assert outside <= split.keys()
    inside = {key for key in split if key not in outside}
    assert inside and all(key.startswith("bert.encoder.seq_layers.") for key in inside)
    assert len(split) == len(plain)


def test_gpt2s_query_key_and_value_compute_what_they_did():
    model = _gpt2()
    layer = model.transformer.h[1].attn
    hidden = torch.randn(2, 5, 12)

    split = gpt2.translate_hf_state_dict_to_smdistributed_gpt2(model.state_dict())

    parts = layer.c_attn(hidden).split(12, dim=-1)
    for part, name in zip(parts, ("query", "key", "value"), strict=True):
        prefix = f"transformer.seq_layers.1.attention.{name}"
        result = nn.functional.linear(hidden, split[f"{prefix}.weight"], split[f"{prefix}.bias"])
        torch.testing.assert_close(result, part)


def test_masks_of_older_versions_are_made_when_asked_for_and_dropped_on_the_way_back():
    there, back = _GPT_NEO
    split = there(_gptneo().state_dict())

    plain = back(split, 300)

    glob = plain["transformer.h.0.attn.attention.bias"]
    local = plain["transformer.h.1.attn.attention.bias"]
    assert glob.shape == local.shape == (1, 1, 300, 300)
    assert int(glob.sum()) == 300 * 301 // 2
    assert [int(n) for n in local[0, 0].sum(-1)[[0, 255, 256, 299]]] == [1, 256, 256, 256]
    assert plain["transformer.h.0.attn.attention.masked_bias"].item() == -1e9
    assert there(plain).keys() == split.keys()


def test_gpt2s_masks_have_the_buffers_names_and_values():
    split = _GPT2[0](_gpt2().state_dict())

    plain = _GPT2[1](split, max_seq_len=4)

    assert plain["transformer.h.1.attn.masked_bias"].item() == -1e4
    assert torch.equal(
        plain["transformer.h.1.attn.bias"][0, 0], torch.ones(4, 4, dtype=torch.uint8).tril()
    )


def test_a_part_that_is_missing_is_named():
    split = _GPT2[0](_gpt2().state_dict())
    del split["transformer.seq_layers.0.attention.key.weight"]

    with pytest.raises(SMPCheckpointError, match=r"seq_layers\.0\.attention\.key\.weight is missi"):
        _GPT2[1](split)


def test_a_tensor_that_does_not_divide_is_named():
    plain = _gpt2().state_dict()
    plain["transformer.h.0.attn.c_attn.bias"] = torch.zeros(37)

    with pytest.raises(SMPCheckpointError, match=r"h\.0\.attn\.c_attn\.bias has shape \(37,\)"):
        _GPT2[0](plain)


def test_all_documented_spellings_are_there():
    assert gpt2.translate_hf_state_dict_to_smdistributed is _GPT2[0]
    assert gptj.translate_hf_gptj_state_dict_to_smdistributed is _GPTJ[0]
    assert roberta.translate_state_dict_to_smdistributed is _ROBERTA[0]
    for there, back in (_GPT2, _GPTJ, _GPT_NEO, _BERT, _ROBERTA):
        assert there({}, 8) == {} and back({}, 8) == {}
