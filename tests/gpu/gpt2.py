# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in plain PyTorch, of any size: what jobs on GPUs train, and benchmarks measure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    words: int
    positions: int

    def flops(self, tokens: int) -> float:
        """FLOPs of forward and backward over so many tokens in rows of ``positions``."""
        matrices = 12 * self.layers * self.width**2 + self.words * self.width
        return tokens * 6 * (matrices + 2 * self.layers * self.width * self.positions)


TINY = Size(layers=4, heads=4, width=64, words=128, positions=32)
MEDIUM = Size(layers=24, heads=16, width=1024, words=50304, positions=1024)


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.inward = nn.Linear(size.width, 3 * size.width)
        self.outward = nn.Linear(size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, positions, width = x.shape
        parts = self.inward(x).view(rows, positions, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(context.transpose(1, 2).reshape(rows, positions, width))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.attention = Attention(size)
        self.wide = nn.Linear(size.width, 4 * size.width)
        self.narrow = nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """``ids`` [rows, positions] -> scores [rows, positions, words]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Embedding(size.positions, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Loss of the next tokens, in 32 bits: [rows, positions, words], [rows, positions] ->
    scalar."""
    return F.cross_entropy(scores[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
