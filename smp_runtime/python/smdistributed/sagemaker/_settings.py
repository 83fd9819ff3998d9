# SPDX-License-Identifier: Apache-2.0
"""Where settings of ``torch.sagemaker`` come from. Their keys, checks and texts are C++'s, so that
``train`` refuses the same mistakes before a job starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch.exceptions import SMPConfigError
from smdistributed.modelparallel.torch.job import settings_text

Origin = tuple[str, str]
"""Settings as text, and the place that gave them."""

STATE = "torch.sagemaker.state"
NOTHING: Origin = ("", "torch.sagemaker.init(config)")


def of_estimator() -> Origin:
    """Settings of the job, which the launcher hands over."""
    name = "SM_HP_MP_PARAMETERS"
    return os.environ.get(name, ""), name


def of_script(config: Mapping[str, Any] | str | os.PathLike[str] | None) -> Origin:
    """Settings that a script gives to ``init``: a dict, or the path of a JSON file.

    >>> of_script({"hybrid_shard_degree": 2})
    ('{"hybrid_shard_degree": 2}', 'torch.sagemaker.init(config)')
    """
    where = NOTHING[1]
    if config is None:
        return NOTHING
    if isinstance(config, str | os.PathLike):
        try:
            return Path(config).read_text(), str(config)
        except (OSError, ValueError) as error:
            raise SMPConfigError(f"cannot read the settings {config}: {error}") from error
    if not isinstance(config, Mapping):
        raise SMPConfigError(
            f"{where} is of {type(config).__name__}; expected a dict of settings, or the path of a "
            "JSON file with one"
        )
    return settings_text(config, where), where


def of_state(written: Mapping[str, Any]) -> Origin:
    """Settings that a script wrote to ``torch.sagemaker.state``."""
    return settings_text(written, STATE), STATE
