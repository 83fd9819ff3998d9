# SPDX-License-Identifier: Apache-2.0
"""A local S3 (moto) and job trees whose code has to be fetched."""

from __future__ import annotations

import io
import json
import tarfile
import textwrap
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import Tree

REGION = "eu-west-3"
BUCKET = "jobs"
HELLO = 'print("hello from", __file__)\n'  # a script
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "open/sesame+="}


@dataclass
class ObjectStore:
    """A running moto server."""

    url: str
    client: Any

    @property
    def settings(self) -> dict[str, str]:
        """The variables of a job that uses it."""
        return {"S3_ENDPOINT_URL": self.url, "AWS_REGION": REGION, **KEYS}

    def put(self, key: str, content: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def objects(self) -> dict[str, bytes]:
        listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {
            one["Key"]: self.client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
            for one in listed
        }


def running_store() -> Iterator[ObjectStore]:
    boto3 = pytest.importorskip("boto3", reason="needs moto and boto3 (docker/locks/dev.lock)")
    server_module = pytest.importorskip("moto.server", reason="needs moto (docker/locks/dev.lock)")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    # Servers of one process share what they hold.
    urllib.request.urlopen(f"{url}/moto-api/reset", data=b"").close()
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield ObjectStore(url, client)
    server.stop()


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
