# SPDX-License-Identifier: Apache-2.0
"""From the products of queries and keys to attention probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def alibi_bias(
    heads: int, first: int, own: int, length: int, largest: float, like: torch.Tensor
) -> torch.Tensor:
    """``[own, 1, length]`` added to scores of heads ``first`` to ``first + own`` of ``heads``.

    A head's slope is 2^(-largest (head+1)/heads); the bias of key j is slope * (j - length + 1).
    Softmax takes no notice of a constant, so that it stands for slope * (j - i) at every query i.
    (Press, Smith, Lewis: Train Short, Test Long, 2021.)

    >>> alibi_bias(8, 0, 1, 3, 8, torch.zeros(1)).flatten().tolist()
    [-1.0, -0.5, 0.0]
    """
    numbers = torch.arange(first + 1, first + own + 1, device=like.device, dtype=torch.float32)
    slopes = torch.exp2(-largest * numbers / heads)
    places = torch.arange(1 - length, 1, device=like.device, dtype=torch.float32)
    return (slopes[:, None, None] * places[None, None, :]).to(like.dtype)


def hidden_keys(queries: int, keys: int, window: int | None, device: torch.device) -> torch.Tensor:
    """``[queries, keys]``, True where a causal mask hides the key: it comes later than the query,
    or is as far back as ``window``.

    >>> hidden_keys(2, 2, None, torch.device("cpu")).int().tolist()
    [[0, 1], [0, 0]]
    """
    query = torch.arange(keys - queries, keys, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    hidden = key > query
    return hidden if window is None else hidden | (query - key >= window)


def rotated(
    tensor: torch.Tensor,
    dims: int,
    base: float,
    interleaved: bool,
    frequencies: Sequence[float] | None = None,
) -> torch.Tensor:
    """Rotary position embedding of the first ``dims`` of ``[B, heads, S, head_size]``.

    ``interleaved``: dims 2i and 2i+1 are a pair (GPT-J); else i and i + dims/2 (GPT-NeoX, Llama).
    ``frequencies``: of each pair, in place of those that ``base`` gives. (Su et al.: RoFormer,
    2021.)
    """
    length = tensor.shape[2]
    if frequencies is None:
        steps = torch.arange(0, dims, 2, dtype=torch.float32, device=tensor.device)
        turns = 1.0 / base ** (steps / dims)
    else:
        turns = torch.tensor(frequencies, dtype=torch.float32, device=tensor.device)
    places = torch.arange(length, dtype=torch.float32, device=tensor.device)
    angles = places[:, None] * turns[None, :]
    sine, cosine = angles.sin(), angles.cos()
    turned, rest = tensor[..., :dims].float(), tensor[..., dims:]
    if interleaved:
        one, other = turned[..., 0::2], turned[..., 1::2]
        pairs = (one * cosine - other * sine, other * cosine + one * sine)
        result = torch.stack(pairs, dim=-1).flatten(-2)
    else:
        one, other = turned.chunk(2, dim=-1)
        result = torch.cat((one * cosine - other * sine, other * cosine + one * sine), dim=-1)
    return torch.cat((result.to(tensor.dtype), rest), dim=-1)
