# SPDX-License-Identifier: Apache-2.0
"""The buffers in which older versions of Transformers kept the causal masks of a model."""

from __future__ import annotations

import re
from typing import Any

import torch


def with_causal_masks(
    plain: dict[str, Any],
    layers: str,
    attention: str,
    length: int | None,
    masked_bias: float,
    window_of_odd_layers: int | None = None,
) -> dict[str, Any]:
    """``plain`` with ``bias`` and ``masked_bias`` of each layer; without ``length`` as it is.

    ``bias`` is a [1, 1, length, length] mask, 1 where a token sees another. With
    ``window_of_odd_layers`` a token of layers 1, 3, ... sees that many tokens, itself included.

    >>> made = with_causal_masks({"h.0.ln_1.weight": torch.ones(2)}, "h.", "attn", 2, -1e4)
    >>> made["h.0.attn.bias"][0, 0].tolist(), made["h.0.attn.masked_bias"].item()
    ([[1, 0], [1, 1]], -10000.0)
    """
    if length is None:
        return plain
    numbers = {m[1] for key in plain if (m := re.match(re.escape(layers) + r"(\d+)\.", key))}
    whole = torch.ones(length, length, dtype=torch.uint8).tril()
    for number in sorted(numbers, key=int):
        mask = whole
        if window_of_odd_layers is not None and int(number) % 2 == 1:
            mask = whole - whole.tril(-window_of_odd_layers)
        prefix = f"{layers}{number}.{attention}"
        plain[f"{prefix}.bias"] = mask.view(1, 1, length, length).clone()
        plain[f"{prefix}.masked_bias"] = torch.tensor(masked_bias)
    return plain
