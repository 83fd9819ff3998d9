# SPDX-License-Identifier: Apache-2.0
"""Layers that ``torch.sagemaker.transform`` makes of those of Transformers: SMP v1's, called as
FSDP and PyTorch's checkpointing of activations call a layer, with tensors by their places."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._slices.parameter_slices import tp_size
from smdistributed.modelparallel.torch._slices.random_streams import follow_default_generator
from smdistributed.modelparallel.torch.nn import (
    DistributedTransformer,
    DistributedTransformerLayer,
    DistributedTransformerLMHead,
)
from smdistributed.modelparallel.torch.nn.attention_layer import Tensors
from smdistributed.modelparallel.torch.nn.initial_values import Draw
from smdistributed.sagemaker.tensor_parallel.whole_states import WholeStates


class TransformerLayer(DistributedTransformerLayer, metaclass=ABCMeta):
    """A layer whose heads and inner channels are split over the ranks of a tensor-parallel group:
    what scripts wrap, and whose activations they checkpoint. Where ``transform`` splits nothing,
    the given model's own layers count as such."""

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``[batch, sequence, hidden]``, as they come in."""
        if self.training and self._drops:
            # PyTorch's checkpointing knows of no other generator than its own.
            follow_default_generator(hidden_states.device)
        result = super().forward((hidden_states, attention_mask))[0]
        assert result is not None
        return result

    @property
    def _drops(self) -> bool:
        attention, output = self.attention, self.output
        return any(
            (
                attention.attention_dropout_prob,
                attention.hidden_dropout_prob,
                output.hidden_dropout_prob,
            )
        )


def count_as_layers(model: nn.Module) -> None:
    """Has the layers of a model that stays whole be instances of :class:`TransformerLayer`."""
    names = set(getattr(model, "_no_split_modules", None) or ())  # Transformers' word for them
    for kind in {type(module) for module in model.modules()}:
        if kind.__name__ in names:
            TransformerLayer.register(kind)


#: The layer of Transformer Engine inside it, which scripts for PyTorch before 2.2 name.
TETransformerLayer = TransformerLayer


class LayerStack(nn.Sequential):
    """Layers one after the other, all with one mask."""

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        for layer in self:
            hidden_states = layer(hidden_states, attention_mask)
        return hidden_states


class Transformer(DistributedTransformer):
    """The layers of a language model."""

    layer_class = TransformerLayer
    stack_class = LayerStack

    def _through_layers(self, packed: Tensors) -> torch.Tensor:
        result: torch.Tensor = self.seq_layers(*packed)
        return result


class TransformerLMHead(DistributedTransformerLMHead):
    """A causal model of Transformers with split layers. It is called, and answers, as that is."""

    transformer_class = Transformer
    config: Any
    """Transformers' own."""
    whole_states: WholeStates
    """How its values are those of the model that was given."""
    waits_for_rank0 = False
    """Values are those of rank 0 only when FSDP has sent them."""
    first_values: Mapping[tuple[nn.Module, str], Draw] = {}
    """Of parameters without storage, by module and name."""

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def num_parameters(self, only_trainable: bool = False) -> int:
        """Elements of all parameters, whole, before FSDP wraps the model."""
        axes = self.whole_states.axes
        return sum(
            parameter.numel() * (1 if axes[name] is None else tp_size())
            for name, parameter in self.named_parameters()
            if parameter.requires_grad or not only_trainable
        )

    def get_input_embeddings(self) -> nn.Module:
        return self.word_embedding

    def get_output_embeddings(self) -> nn.Module | None:
        return self.lm_head

    def _init_weights(self, module: nn.Module) -> None:
        """Values of a module's own parameters that had no storage, as Transformers has them."""
        for name, parameter in module._parameters.items():
            draw = self.first_values.get((module, name))
            if draw is not None and parameter is not None:
                draw(parameter)

    def _embedded(
        self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor | None
    ) -> torch.Tensor:
        if self.training and self.dropout.p:
            follow_default_generator(ids.device)
        return super()._embedded(ids, types, positions)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, items: Any) -> torch.Tensor:
        return super()._loss(logits.float(), labels, items)  # as Transformers has it
