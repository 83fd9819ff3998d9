# SPDX-License-Identifier: Apache-2.0
"""Job trees whose code has to be fetched, from a local S3 or elsewhere."""

from __future__ import annotations

import io
import json
import tarfile
import textwrap
from pathlib import Path

from jobs import Tree

from tests.object_store import BUCKET, KEYS, REGION, ObjectStore, running_store

__all__ = [
    "BUCKET",
    "HELLO",
    "KEYS",
    "REGION",
    "ObjectStore",
    "job_tree",
    "running_store",
    "tar_gz",
]

HELLO = 'print("hello from", __file__)\n'  # a script


def tar_gz(files: dict[str, str | bytes], mode: str = "w:gz") -> bytes:
    """An archive of files, names as they stand."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            content = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mtime = 1_700_000_000  # zip files know none before 1980
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def job_tree(
    folder: Path, submit_directory: str | None, program: str = "train.py", **more: str
) -> Tree:
    """A tree with an empty code folder. `more` are hyperparameters."""
    base = folder / "opt_ml"
    (base / "code").mkdir(parents=True)
    config = base / "input" / "config"
    config.mkdir(parents=True)
    parameters = {"sagemaker_program": program, **more}
    if submit_directory is not None:
        parameters["sagemaker_submit_directory"] = submit_directory
    (config / "hyperparameters.json").write_text(
        json.dumps({key: json.dumps(value) for key, value in parameters.items()})
    )
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    return Tree(base)
