# SPDX-License-Identifier: Apache-2.0
"""The names of a causal model's state, with a language-model head and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed.modelparallel.torch.nn.huggingface.causal_masks import with_causal_masks
from smdistributed.modelparallel.torch.nn.huggingface.name_table import NameTable, Pair, linear


class CausalNames:
    """``layer`` names the parts of a layer; ``masks`` matches the buffers that hold causal masks.
    ``attention`` is where Transformers kept them in a layer, ``masked_bias`` their other value."""

    def __init__(
        self,
        layer: tuple[Pair, ...],
        masks: str,
        attention: str,
        masked_bias: float,
        *,
        has_positions: bool = True,
    ) -> None:
        def table(prefix: str) -> NameTable:
            outside = [linear(f"{prefix}wte", "word_embedding")]
            if has_positions:
                outside.append(linear(f"{prefix}wpe", "position_embedding"))
            outside.append(linear(f"{prefix}ln_f", "layernorm"))
            return NameTable(layer, f"{prefix}h.", "transformer.seq_layers.", tuple(outside), masks)

        self.with_head, self.without_head = table("transformer."), table("")
        self._attention, self._masked_bias = attention, masked_bias

    def to_split(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The state dict of either model under the distributed names."""
        table = self.without_head if "wte.weight" in state_dict else self.with_head
        return table.to_split(state_dict)

    def to_plain(
        self, state_dict: Mapping[str, Any], max_seq_len: int | None, window: int | None = None
    ) -> dict[str, Any]:
        """Its inverse, from whole values. For the rest see ``with_causal_masks``."""
        table = self.with_head if "lm_head.weight" in state_dict else self.without_head
        return with_causal_masks(
            table.to_plain(state_dict),
            table.plain_layer,
            self._attention,
            max_seq_len,
            self._masked_bias,
            window,
        )
