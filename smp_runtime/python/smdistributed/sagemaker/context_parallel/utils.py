# SPDX-License-Identifier: Apache-2.0
"""Context-parallel groups of Transformer Engine."""

from __future__ import annotations

from typing import Any, NoReturn


def setup_transformer_engine_cp_groups(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: context parallelism is not offered."""
    raise NotImplementedError(
        "torch.sagemaker.context_parallel.utils.setup_transformer_engine_cp_groups is not there: "
        "context parallelism is not offered"
    )
