# SPDX-License-Identifier: Apache-2.0
"""A transformer layer, split over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import regions
from smdistributed.modelparallel.torch.nn.attention_layer import DistributedAttentionLayer, Tensors
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.normalization import region_norm
from smdistributed.modelparallel.torch.nn.output_layer import DistributedTransformerOutputLayer
from smdistributed.modelparallel.torch.nn.residual_block import added


class DistributedTransformerLayer(DistributedModule):
    """Attention, cross attention if asked for, and the output block.

    ``forward((hidden, mask))`` returns the same tuple with new hidden states, and
    ``((hidden, cross_states, mask, cross_mask))`` likewise. Shapes, masks and most arguments are
    DistributedAttentionLayer's and DistributedTransformerOutputLayer's.

    Args:
        add_cross_attention: a block between the two that attends to ``cross_states``.
        parallel_attn_output: attention and output block side by side on one layer norm (GPT-J);
            needs pre_layernorm alone.
        single_pre_layernorm: False gives each of the two a layer norm of its own (GPT-NeoX).
    """

    divided_sizes = (
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "intermediate_size",
    )

    def __init__(
        self,
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
        use_alibi: bool = False,
        alibi_bias_max: float = 8,
        *,
        num_key_value_heads: int | None = None,
        window_size: int | None = None,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int = 0,
        query_key_layer_scaling: bool = False,
        attention_in_fp32: bool = False,
        use_qkv_bias: bool = True,
        use_attn_dense_bias: bool = True,
        fused_qkv: bool = False,
        normalize_queries_keys: bool = False,
        rotary_dim: int | None = None,
        rotary_emb_base: float = 10000.0,
        rotary_interleaved: bool = True,
        rotary_frequencies: Sequence[float] | None = None,
        flash_attention: bool = False,
        fused_softmax: bool = True,
        fused_bias_gelu: bool = False,
        gated_output: bool = False,
        use_output_bias: bool = True,
        normalization: str = "layernorm",
        fp32_residual_addition: bool = False,
        parallel_attn_output: bool = False,
        single_pre_layernorm: bool = True,
    ) -> None:
        if parallel_attn_output and (post_layernorm or not pre_layernorm or add_cross_attention):
            raise SMPValidationError(
                "DistributedTransformerLayer: parallel_attn_output needs pre_layernorm=True, "
                f"post_layernorm=False and no cross attention; got pre_layernorm={pre_layernorm}, "
                f"post_layernorm={post_layernorm}, add_cross_attention={add_cross_attention}"
            )
        super().__init__()
        self.hidden_size = hidden_size
        self.add_cross_attention = add_cross_attention
        self.parallel_attn_output = parallel_attn_output
        self.fp32_residual_addition = fp32_residual_addition
        shares_norm = parallel_attn_output and single_pre_layernorm

        def attention(cross: bool) -> DistributedAttentionLayer:
            return DistributedAttentionLayer(
                num_attention_heads,
                attention_head_size,
                hidden_size,
                attention_dropout_prob,
                hidden_dropout_prob,
                layernorm_epsilon,
                initializer_range,
                use_normal_initialization,
                cross,
                causal_mask_size,
                pre_layernorm and not shares_norm,
                post_layernorm,
                num_key_value_heads=num_key_value_heads,
                window_size=window_size,
                scale_attention_scores=scale_attention_scores,
                scale_attn_by_layer_idx=scale_attn_by_layer_idx,
                layer_idx=layer_idx,
                query_key_layer_scaling=query_key_layer_scaling,
                attention_in_fp32=attention_in_fp32,
                use_qkv_bias=use_qkv_bias,
                use_attn_dense_bias=use_attn_dense_bias,
                fused_qkv=fused_qkv and not cross,
                normalize_queries_keys=normalize_queries_keys,
                rotary_dim=None if cross else rotary_dim,
                rotary_emb_base=rotary_emb_base,
                rotary_interleaved=rotary_interleaved,
                rotary_frequencies=rotary_frequencies,
                use_alibi=use_alibi and not cross,
                alibi_bias_max=alibi_bias_max,
                flash_attention=flash_attention,
                fused_softmax=fused_softmax,
                normalization=normalization,
                add_residual=not parallel_attn_output,
                fp32_residual_addition=fp32_residual_addition,
            )

        self.attention = attention(False)
        self.output = DistributedTransformerOutputLayer(
            hidden_size,
            intermediate_size,
            hidden_dropout_prob,
            activation,
            layernorm_epsilon,
            initializer_range,
            use_normal_initialization,
            pre_layernorm and not shares_norm,
            post_layernorm,
            fp32_residual_addition,
            fused_bias_gelu=fused_bias_gelu,
            gated_output=gated_output,
            use_output_bias=use_output_bias,
            normalization=normalization,
            add_residual=not parallel_attn_output,
        )
        self.cross_attention = attention(True) if add_cross_attention else None
        self.pre_layernorm = (
            region_norm(normalization, hidden_size, layernorm_epsilon) if shares_norm else None
        )
        self._enclose(self.attention, self.output)
        if self.cross_attention is not None:
            self._enclose(self.cross_attention)

    def forward(self, inputs: Tensors) -> Tensors:
        hidden, cross, mask, cross_mask = unpacked(self, inputs, self.add_cross_attention)
        states = self._hidden(hidden, self.hidden_size)
        if self.enclosed:
            states = self._layer(states, cross, mask, cross_mask)
        else:
            batch = states.shape[0]
            states = regions.leave(
                self._layer(
                    regions.enter(states),
                    None if cross is None else regions.enter(cross),
                    regions.enter_constant(mask, batch),
                    regions.enter_constant(cross_mask, batch),
                )
            )
        return (states, cross, mask, cross_mask) if self.add_cross_attention else (states, mask)

    def _layer(
        self,
        hidden: torch.Tensor,
        cross: torch.Tensor | None,
        mask: torch.Tensor | None,
        cross_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        if self.parallel_attn_output:
            normal = hidden if self.pre_layernorm is None else self.pre_layernorm(hidden)
            both = self.attention((normal, mask)) + self.output(normal)
            return added(both, hidden, self.fp32_residual_addition)
        attended = self.attention((hidden, mask))
        if self.cross_attention is not None:
            attended = self.cross_attention((attended, cross, cross_mask))
        transformed: torch.Tensor = self.output(attended)
        return transformed


def unpacked(module: DistributedModule, inputs: Tensors, cross: bool) -> list[torch.Tensor | None]:
    """Hidden states, cross states, mask and cross mask of a tuple with or without cross states."""
    if cross:
        names = ("hidden_states", "cross_states", "attention_mask", "cross_mask")
        return module._unpacked(inputs, names)
    hidden, mask = module._unpacked(inputs, ("hidden_states", "attention_mask"))
    return [hidden, None, mask, None]
