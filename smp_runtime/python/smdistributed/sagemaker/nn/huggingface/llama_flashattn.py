# SPDX-License-Identifier: Apache-2.0
"""Llama's attention over PyTorch's ``scaled_dot_product_attention``."""

from __future__ import annotations

import copy
from typing import Any

from transformers.models.llama import modeling_llama

# Up to Transformers 4.47 each implementation was a class of its own.
_CLASSES = getattr(modeling_llama, "LLAMA_ATTENTION_CLASSES", {})
_Attention: Any = _CLASSES.get("sdpa", modeling_llama.LlamaAttention)


class LlamaFlashAttention(_Attention):  # type: ignore[misc]
    """To take the place of a Llama layer's ``self_attn``; its projections are to be copied."""

    def __init__(self, config: Any, layer_idx: int | None = None) -> None:
        own = copy.copy(config)
        own._attn_implementation = "sdpa"
        super().__init__(own, layer_idx)
