# SPDX-License-Identifier: Apache-2.0
"""The classes that can be split without the script's registering them: torch's and Hugging Face's.

Transformers is never imported from here: a model of a class that was not imported cannot exist.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._annotations.tensor_registry import Arguments, Registration
from smdistributed.modelparallel.torch.nn import DistributedEmbedding, DistributedLinear
from smdistributed.modelparallel.torch.nn.huggingface.causal_models import CAUSAL_MODELS
from smdistributed.modelparallel.torch.nn.huggingface.encoders import ENCODERS
from smdistributed.modelparallel.torch.nn.huggingface.llama_models import LLAMA_MODELS

_HUGGING_FACE = {
    "transformers.models.gpt2.modeling_gpt2": CAUSAL_MODELS,
    "transformers.models.gptj.modeling_gptj": CAUSAL_MODELS,
    "transformers.models.gpt_neo.modeling_gpt_neo": CAUSAL_MODELS,
    "transformers.models.llama.modeling_llama": LLAMA_MODELS,
    "transformers.models.mistral.modeling_mistral": LLAMA_MODELS,
    "transformers.models.qwen2.modeling_qwen2": LLAMA_MODELS,
    "transformers.models.gemma.modeling_gemma": LLAMA_MODELS,
    "transformers.models.bert.modeling_bert": ENCODERS,
    "transformers.models.roberta.modeling_roberta": ENCODERS,
}


def predefined_registration(module: nn.Module) -> Registration | None:
    """The built-in registration for the class of ``module``, exactly that class."""
    kind = type(module)
    if kind is nn.Linear:
        return _LINEAR
    if kind is nn.Embedding:
        return _EMBEDDING
    known = _HUGGING_FACE.get(kind.__module__, {}).get(kind.__name__)
    # A class that only says it is Hugging Face's is not.
    if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
        return None
    return known


def _linear_arguments(module: Any) -> Arguments:
    return (module.in_features, module.out_features), {"bias": module.bias is not None}


def _embedding_arguments(module: Any) -> Arguments:
    return (module.num_embeddings, module.embedding_dim), {
        "padding_idx": module.padding_idx,
        "max_norm": module.max_norm,
        "norm_type": module.norm_type,
        "scale_grad_by_freq": module.scale_grad_by_freq,
        "sparse": module.sparse,
    }


_LINEAR = Registration(DistributedLinear, arguments_of=_linear_arguments, same_calls=True)
_EMBEDDING = Registration(DistributedEmbedding, arguments_of=_embedding_arguments, same_calls=True)
