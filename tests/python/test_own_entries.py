# SPDX-License-Identifier: Apache-2.0
"""Of a state dict that is loaded, what a rank does not have is neither translated nor looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._state.own_entries import OwnEntries
from smdistributed.modelparallel.torch.nn.huggingface.gpt2 import NAMES


class Translations:
    """GPT-2's, and which values of tensors it was given."""

    def __init__(self) -> None:
        self.given: list[set[str]] = []

    def __call__(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        if not any(value.is_meta for value in entries.values()):
            self.given.append(set(entries))
        return NAMES.with_head.to_split(entries)


@pytest.fixture
def plain() -> dict[str, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 31, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
    return dict(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).state_dict())


def parts_of(name: str) -> Iterator[str]:
    for part in ("query", "key", "value"):
        yield f"{name}.attention.{part}.weight"


def test_entries_are_those_of_the_whole_translation(smp: Any, plain: Any) -> None:
    expected = NAMES.with_head.to_split(plain)

    own = OwnEntries(plain, NAMES.with_head.to_split, {})

    assert list(own) == list(expected)
    assert own.shapes == {name: tuple(value.shape) for name, value in expected.items()}
    assert all(torch.equal(own[name], value) for name, value in expected.items())


def test_an_entry_is_made_of_what_it_takes_alone_and_once(smp: Any, plain: Any) -> None:
    translate = Translations()
    own = OwnEntries(plain, translate, {})

    for name in parts_of("transformer.seq_layers.1"):
        assert own[name].shape == (16, 16)

    assert translate.given == [{"transformer.h.1.attn.c_attn.weight"}]


def test_an_entry_that_only_has_another_name_is_the_value_itself(smp: Any, plain: Any) -> None:
    translate = Translations()

    own = OwnEntries(plain, translate, {})

    value = own["word_embedding.weight"]
    assert value.data_ptr() == plain["transformer.wte.weight"].data_ptr()
    assert translate.given == []


@pytest.mark.parametrize("lacking", ["lm_head.weight", "transformer.wte.weight"])
def test_of_the_names_of_a_tied_parameter_one_is_enough(smp: Any, plain: Any, lacking: str) -> None:
    value = plain.pop(lacking)

    own = OwnEntries(
        plain, NAMES.with_head.to_split, {}, {"lm_head.weight": "word_embedding.weight"}
    )

    assert torch.equal(own["lm_head.weight"], value)
    assert torch.equal(own["word_embedding.weight"], value)
    assert {"lm_head.weight", "word_embedding.weight"} <= own.shapes.keys() == set(own)


def test_what_is_no_tensor_is_handed_on(smp: Any) -> None:
    own = OwnEntries({"a": torch.ones(2), "text": "b", "none": None}, dict, {})

    assert (own["text"], own["none"]) == ("b", None)
    assert own.shapes == {"a": (2,), "text": None, "none": None}
