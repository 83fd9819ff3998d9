# SPDX-License-Identifier: Apache-2.0
"""Names of state-dict entries, from Hugging Face's models to distributed ones and back."""

from smdistributed.modelparallel.torch.nn.huggingface import (
    bert,
    gemma,
    gpt2,
    gptj,
    gptneo,
    gptneox,
    llama,
    mistral,
    qwen2,
    qwen3,
    roberta,
)

__all__ = [
    "bert", "gemma", "gpt2", "gptj", "gptneo", "gptneox", "llama", "mistral", "qwen2", "qwen3",
    "roberta",
]  # fmt: skip
