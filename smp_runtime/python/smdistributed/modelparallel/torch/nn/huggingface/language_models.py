# SPDX-License-Identifier: Apache-2.0
"""Translates Hugging Face's causal models, their arguments and results to and from
``DistributedTransformerLMHead``'s."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from smdistributed.modelparallel.torch._annotations.tensor_registry import (
    ArgumentHook,
    Arguments,
    Registration,
)
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.nn import DistributedTransformerLMHead
from smdistributed.modelparallel.torch.nn.huggingface.causal_names import CausalNames


def arguments_from_config(module: Any) -> Arguments:
    """Hugging Face's models are made of their config, and keep it."""
    return (module.config,), {}


def refuse(name: str, given: dict[str, Any]) -> None:
    """Raises SMPUnsupportedError for arguments of ``forward`` that ask for something."""
    for argument, value in given.items():
        if value is not None and value is not False and value != 0:
            raise SMPUnsupportedError(
                f"{name}.forward got {argument}, which its distributed counterpart does not take; "
                "leave it out, or take the model out of tensor parallelism"
            )


_POSITIONAL = (
    "input_ids",
    "past_key_values",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "inputs_embeds",
)
_TOKENS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
CROSS = ("encoder_hidden_states", "encoder_attention_mask")


def model_arguments(
    name: str, *further: str, first: tuple[str, ...] = _POSITIONAL
) -> Callable[..., Arguments]:
    """The forward hook of the model ``name``, which embeds tokens itself.

    ``further`` are the positional parameters of its ``forward`` that come after the ``first``,
    those that all such models have.
    """
    positional = (*first, *further)

    def hook(*args: Any, **kwargs: Any) -> Arguments:
        given = {**dict(zip(positional, args, strict=False)), **kwargs}
        tokens, mask, types, positions = (given.pop(key, None) for key in _TOKENS)
        states, states_mask = (given.pop(key, None) for key in CROSS)
        labels = given.pop("labels", None)
        items = given.pop("num_items_in_batch", None)
        given.pop("use_cache", None)  # configs say it by default; a cache is for generation only
        if given.pop("return_dict", None) is False:
            given["return_dict=False"] = True
        refuse(name, given)
        cross = () if states is None else (states, masked(states_mask))
        named = {} if items is None else {"num_items_in_batch": items}
        return ((tokens, masked(mask), types, positions, *cross, labels),), named

    return hook


def masked(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """1 where a token is masked, which is where Hugging Face has 0."""
    if attention_mask is None:
        return None
    return (attention_mask == 0).to(torch.long)


def causal_result(result: Any) -> Any:
    """Loss and logits, or logits alone, as Hugging Face returns them."""
    outputs = importlib.import_module("transformers.modeling_outputs")
    if isinstance(result, torch.Tensor):
        return outputs.CausalLMOutputWithCrossAttentions(logits=result)
    loss, logits = result
    return outputs.CausalLMOutputWithCrossAttentions(loss=loss, logits=logits)


def model_result(result: torch.Tensor) -> Any:
    """Hidden states, as Hugging Face returns them."""
    outputs = importlib.import_module("transformers.modeling_outputs")
    return outputs.BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=result)


def causal_registrations(
    class_names: tuple[str, str],
    sizes: Callable[..., dict[str, Any] | None],
    names: CausalNames,
    further: tuple[str, ...] = (),
    *,
    arguments_of: Callable[[Any], Arguments] = arguments_from_config,
    forward_hook: Callable[..., ArgumentHook] = model_arguments,
) -> dict[str, Registration]:
    """Registrations of the classes with a language-model head and without.

    Args:
        sizes: the keywords of ``DistributedTransformerLMHead``, of the config and what else
            ``arguments_of`` gives; None for a model that stays as it is.
        further: positional parameters of ``forward``; the model with a head has labels behind them.
        forward_hook: makes the hook, as ``model_arguments`` does.
    """

    def registration(name: str, head: bool) -> Registration:
        def init_hook(config: Any, *more: Any) -> Any:
            kwargs = sizes(config, *more)
            if kwargs is None:
                return None
            tied = {"tie_input_output_embedding": config.tie_word_embeddings} if head else {}
            return (), {**kwargs, **tied, "add_lm_head": head}

        table = names.with_head if head else names.without_head
        return Registration(
            DistributedTransformerLMHead,
            init_hook,
            forward_hook(name, *further, *(("labels",) if head else ())),
            causal_result if head else model_result,
            arguments_of,
            table.to_split,
            table.to_plain,
        )

    with_head, without_head = class_names
    return {
        with_head: registration(with_head, head=True),
        without_head: registration(without_head, head=False),
    }
