# SPDX-License-Identifier: Apache-2.0
"""The buffers in which older versions of Transformers kept the causal masks of a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch


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
