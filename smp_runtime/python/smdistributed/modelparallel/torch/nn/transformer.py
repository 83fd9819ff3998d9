# SPDX-License-Identifier: Apache-2.0
"""A stack of transformer layers, split over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.attention_layer import Tensors
from smdistributed.modelparallel.torch.nn.distributed_module import (
    DistributedModule,
    with_options_of,
)
from smdistributed.modelparallel.torch.nn.normalization import region_norm
from smdistributed.modelparallel.torch.nn.transformer_layer import (
    DistributedTransformerLayer,
    unpacked,
)


@with_options_of(DistributedTransformerLayer, "layer_idx")
class DistributedTransformer(DistributedModule):
    """``num_layers`` DistributedTransformerLayers, in ``seq_layers``; the same tuples in and out.

    Activations enter the region of distributed layers once, before the first, and leave it once.
    With both pre_layernorm and post_layernorm there is a layer norm on the input and one on the
    output, too. Arguments are those of the layer, by name or in its order.

    Args:
        attention_layers: for each layer ``local``, which sees ``window_size`` keys back, or
            ``global`` (GPT-Neo); None: all alike.
    """

    divided_sizes = DistributedTransformerLayer.divided_sizes
    layer_class: ClassVar[type[DistributedTransformerLayer]] = DistributedTransformerLayer
    stack_class: ClassVar[type[nn.Sequential]] = nn.Sequential

    def __init__(
        self,
        num_layers: int = 12,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        *,
        attention_layers: Sequence[str] | None = None,
        window_size: int | None = None,
        normalization: str = "layernorm",
        **layer_options: Any,
    ) -> None:
        kinds = ["local"] * num_layers if attention_layers is None else list(attention_layers)
        if len(kinds) != num_layers or not {"local", "global"}.issuperset(kinds):
            raise SMPValidationError(
                f"DistributedTransformer: attention_layers {kinds}; expected {num_layers} of "
                "local and global"
            )
        super().__init__()
        self.hidden_size = hidden_size
        self.add_cross_attention = add_cross_attention
        layers = [
            self.layer_class(
                num_attention_heads,
                attention_head_size,
                hidden_size,
                intermediate_size,
                attention_dropout_prob,
                hidden_dropout_prob,
                activation,
                layernorm_epsilon,
                initializer_range,
                use_normal_initialization,
                causal_mask_size,
                add_cross_attention,
                pre_layernorm,
                post_layernorm,
                layer_idx=number,
                window_size=window_size if kind == "local" else None,
                normalization=normalization,
                **layer_options,
            )
            for number, kind in enumerate(kinds)
        ]
        self._enclose(*layers)
        self.seq_layers = self.stack_class(*layers)
        both = pre_layernorm and post_layernorm
        norm = (normalization, hidden_size, layernorm_epsilon)
        self.pre_layernorm = region_norm(*norm) if both else None
        self.layernorm = region_norm(*norm) if both else None

    def forward(self, inputs: Tensors) -> Tensors:
        hidden, cross, mask, cross_mask = unpacked(self, inputs, self.add_cross_attention)
        states = self._hidden(hidden, self.hidden_size)
        batch = states.shape[0]
        states = regions.enter(states)
        mine = regions.enter_constant(mask, batch)
        if self.pre_layernorm is not None:
            states = self.pre_layernorm(states)
        if self.add_cross_attention:
            theirs = None if cross is None else regions.enter(cross)
            packed: Tensors = (states, theirs, mine, regions.enter_constant(cross_mask, batch))
        else:
            packed = (states, mine)
        result = self._through_layers(packed)
        if self.layernorm is not None:
            result = self.layernorm(result)
        result = regions.leave(result)
        return (result, cross, mask, cross_mask) if self.add_cross_attention else (result, mask)

    def _through_layers(self, packed: Tensors) -> torch.Tensor:
        result: torch.Tensor = self.seq_layers(packed)[0]
        return result
