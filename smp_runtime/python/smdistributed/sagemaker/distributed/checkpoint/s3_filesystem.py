# SPDX-License-Identifier: Apache-2.0
"""Addresses in S3, which these checkpoints do not go to."""

from __future__ import annotations

import os


def is_s3_uri(path: str | os.PathLike[str]) -> bool:
    """
    >>> is_s3_uri("s3://bucket/job"), is_s3_uri("/opt/ml/checkpoints")
    (True, False)
    """
    return str(path).startswith(("s3:/", "S3:/"))  # Path("s3://a") has one slash left


def refuse_s3(path: str | os.PathLike[str]) -> None:
    """Raises NotImplementedError for an address in S3."""
    if is_s3_uri(path):
        raise NotImplementedError(
            f"torch.sagemaker.distributed.checkpoint in S3 is not there; got {path}: write to a "
            "folder, such as /opt/ml/checkpoints, which the job uploads"
        )
