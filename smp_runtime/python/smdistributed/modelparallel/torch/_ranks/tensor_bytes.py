# SPDX-License-Identifier: Apache-2.0
"""Tensors as the bytes of their elements, in files and in messages."""

from __future__ import annotations

import torch


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements in row-major order. Without a copy for a tensor of the CPU that is contiguous:
    the same memory then, so that writing changes the tensor.

    >>> bytes_of(torch.tensor([[1, 2], [3, 4]], dtype=torch.int16).t()).hex(" ", 2)
    '0100 0300 0200 0400'
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
