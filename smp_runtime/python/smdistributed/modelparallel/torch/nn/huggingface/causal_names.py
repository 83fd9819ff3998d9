# SPDX-License-Identifier: Apache-2.0
"""The names of a causal model's state, with a language-model head and without, and the buffers in
which older versions of Transformers kept its causal masks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, Pair, linear


@dataclass(frozen=True)
class CausalMasks:
    """Masks of each layer, in its module ``attention``: ``bias``, a [1, 1, length, length] mask, 1
    where a token sees another, and the value ``masked_bias``. With ``window_of_odd_layers`` a token
    of layers 1, 3, ... sees that many tokens, itself included.

    >>> masks = CausalMasks("attn", -1e4)
    >>> made = masks.added({"h.0.ln_1.weight": torch.ones(2)}, "h.", 2)
    >>> made["h.0.attn.bias"][0, 0].tolist(), made["h.0.attn.masked_bias"].item()
    ([[1, 0], [1, 1]], -10000.0)
    """

    attention: str
    masked_bias: float
    window_of_odd_layers: int | None = None

    def added(self, plain: dict[str, Any], layers: str, length: int) -> dict[str, Any]:
        """``plain`` with those of the layers whose names begin with ``layers``."""
        numbers = {m[1] for key in plain if (m := re.match(re.escape(layers) + r"(\d+)\.", key))}
        whole = torch.ones(length, length, dtype=torch.uint8).tril()
        for number in sorted(numbers, key=int):
            mask = whole
            if self.window_of_odd_layers is not None and int(number) % 2 == 1:
                mask = whole - whole.tril(-self.window_of_odd_layers)
            prefix = f"{layers}{number}.{self.attention}"
            plain[f"{prefix}.bias"] = mask.view(1, 1, length, length).clone()
            plain[f"{prefix}.masked_bias"] = torch.tensor(self.masked_bias)
        return plain


_OUTSIDE_OF_GPT = {"wte": "word_embedding", "wpe": "position_embedding", "ln_f": "layernorm"}


class CausalNames:
    """``layer`` names the parts of a layer; ``dropped`` matches buffers without a distributed
    counterpart, of which ``masks`` can be made again.

    The rest is as in GPT-2 and its kin: ``layers`` is where the layers lie, ``outside`` names what
    lies beside them, first the word embedding, and all of these begin with ``prefix`` in a model
    with a head.
    """

    def __init__(
        self,
        layer: tuple[Pair, ...],
        dropped: str,
        masks: CausalMasks | None = None,
        *,
        prefix: str = "transformer.",
        layers: str = "h.",
        outside: Mapping[str, str] = _OUTSIDE_OF_GPT,
        table_class: type[NameTable] = NameTable,
    ) -> None:
        def table(start: str) -> NameTable:
            others = tuple(linear(start + plain, split) for plain, split in outside.items())
            return table_class(layer, start + layers, "transformer.seq_layers.", others, dropped)

        self.with_head, self.without_head = table(prefix), table("")
        self._masks, self._embedding = masks, f"{next(iter(outside))}.weight"

    def to_split(
        self, state_dict: Mapping[str, Any], max_seq_len: int | None = None
    ) -> dict[str, Any]:
        """A state dict of the model, with or without a language-model head, under the distributed
        names.

        ``max_seq_len`` is without effect: causal masks are no state of distributed modules.
        """
        table = self.without_head if self._embedding in state_dict else self.with_head
        return table.to_split(state_dict)

    def to_plain(
        self, state_dict: Mapping[str, Any], max_seq_len: int | None = None
    ) -> dict[str, Any]:
        """The state dict of the model with a language-model head, or of the one without if there is
        none, from whole distributed values.

        With ``max_seq_len`` the causal masks of that length are among it, where older versions of
        Transformers keep them as buffers.
        """
        table = self.with_head if "lm_head.weight" in state_dict else self.without_head
        plain = table.to_plain(state_dict)
        if self._masks is None or max_seq_len is None:
            return plain
        return self._masks.added(plain, table.plain_layer, max_seq_len)
