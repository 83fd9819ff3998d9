# SPDX-License-Identifier: Apache-2.0
"""The logger of ``torch.sagemaker``."""

from __future__ import annotations

import functools
import logging
import os

from smdistributed import _runtime


@functools.cache
def get_logger(name: str = "torch.sagemaker") -> logging.Logger:
    """A logger that writes to stderr; ``SM_LOG_LEVEL`` is its threshold.

    >>> get_logger().name
    'torch.sagemaker'
    """
    logger = logging.getLogger(name)
    logger.setLevel(_runtime.runtime_options(dict(os.environ)).log_level)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(asctime)s: %(levelname)s] %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    return logger
