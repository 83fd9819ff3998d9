# SPDX-License-Identifier: Apache-2.0
"""Published constructors of distributed layers: names, order, defaults, and what they refuse."""

from __future__ import annotations

import inspect

import pytest
import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError

SIZES = {
    "num_attention_heads": 32,
    "attention_head_size": 32,
    "hidden_size": 1024,
    "intermediate_size": 4096,
}
DROPOUT = {"attention_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}
FIRST = {"activation": "gelu", "layernorm_epsilon": 1e-5}
VALUES = {"initializer_range": 0.02, "use_normal_initialization": False}
CAUSAL = {"causal_mask_size": None, "add_cross_attention": False}
NORMS = {"pre_layernorm": False, "post_layernorm": True}
REQUIRED = inspect.Parameter.empty

PUBLISHED = {
    "DistributedLinear": {"in_features": REQUIRED, "out_features": REQUIRED, "bias": True},
    "DistributedEmbedding": {
        "num_embeddings": REQUIRED,
        "embedding_dim": REQUIRED,
        "padding_idx": None,
        "max_norm": None,
        "norm_type": 2.0,
        "scale_grad_by_freq": False,
        "sparse": False,
        "_weight": None,
        "initializer_range": 0.02,
        "_skip_allgather": False,
        "_skip_scatter_and_merge": False,
    },
    "DistributedTransformerLMHead": {
        "num_layers": 12, **SIZES, "vocab_size": 30522, "num_positions": 1024, **DROPOUT, **FIRST,
        "num_token_types": 0, **CAUSAL, "add_lm_head": True, **VALUES, **NORMS,
    },
    "DistributedTransformer": {
        "num_layers": 12, **SIZES, **DROPOUT, **FIRST, **VALUES, **CAUSAL, **NORMS,
    },
    "DistributedTransformerLayer": {
        **SIZES, **DROPOUT, **FIRST, **VALUES, **CAUSAL, **NORMS, "use_alibi": False,
        "alibi_bias_max": 8,
    },
    "DistributedTransformerOutputLayer": {
        "hidden_size": 1024, "intermediate_size": 4096, "hidden_dropout_prob": 0.1, **FIRST,
        **VALUES, **NORMS, "fp32_residual_addition": False,
    },
    "FlashAttentionLayer": {
        "attention_dropout_prob": 0.1, "attention_head_size": None, "scale_attention_scores": True,
        "scale_attn_by_layer_idx": False, "layer_idx": None, "scale": None,
        "triton_flash_attention": False, "use_alibi": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_constructors_take_the_published_arguments_in_their_order(name):
    parameters = inspect.signature(getattr(smp.nn, name)).parameters.values()

    found = {p.name: p.default for p in parameters if p.name in PUBLISHED[name]}

    assert list(found.items()) == list(PUBLISHED[name].items())


def test_attention_takes_its_part_of_a_layers_arguments():
    found = inspect.signature(smp.nn.DistributedAttentionLayer).parameters

    wanted = {**SIZES, **DROPOUT, **VALUES, **NORMS, "cross_attention": False}
    del wanted["intermediate_size"]
    assert wanted.items() <= {name: p.default for name, p in found.items()}.items()


@pytest.mark.parametrize(
    "keyword",
    ["distribute_embedding", "use_alibi", "attention_in_fp32", "fp32_residual_addition",
     "query_key_layer_scaling", "fused_softmax", "fused_bias_gelu", "flash_attention"],
)  # fmt: skip
def test_a_language_model_takes_the_keywords_of_published_jobs(keyword):
    assert keyword in inspect.signature(smp.nn.DistributedTransformerLMHead).parameters


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: smp.nn.DistributedEmbedding(4, 4, max_norm=1.0), SMPUnsupportedError, "max_norm"),
        (lambda: smp.nn.DistributedEmbedding(4, 4, sparse=True), SMPUnsupportedError, "sparse"),
        (
            lambda: smp.nn.DistributedTransformerLayer(2, 2, 4, 8, post_layernorm=False),
            SMPValidationError,
            "DistributedAttentionLayer: one of pre_layernorm and post_layernorm must be True",
        ),
        (
            lambda: smp.nn.DistributedTransformerOutputLayer(4, 8, post_layernorm=False),
            SMPValidationError,
            "DistributedTransformerOutputLayer: one of pre_layernorm and post_layernorm",
        ),
        (
            lambda: smp.nn.DistributedTransformerOutputLayer(4, 8, activation="swish"),
            SMPValidationError,
            'activation "swish" is none of gelu, relu',
        ),
        (
            lambda: smp.nn.DistributedTransformer(2, 2, 2, 4, 8, attention_layers=["wide"]),
            SMPValidationError,
            "attention_layers .'wide'.; expected 2 of local and global",
        ),
    ],
)
def test_what_a_constructor_cannot_do_is_named(make, kind, said):
    smp.init({})
    try:
        with pytest.raises(kind, match=said):
            make()
    finally:
        smp.shutdown()
