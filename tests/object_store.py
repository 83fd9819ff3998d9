# SPDX-License-Identifier: Apache-2.0
"""A local S3 (moto)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

REGION = "eu-west-3"
BUCKET = "jobs"
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

    @contextmanager
    def checking_signatures(self) -> Iterator[dict[str, str]]:
        """Inside, moto computes signatures itself (with botocore) and refuses wrong ones; the
        variables of a user with all rights."""
        boto3 = pytest.importorskip("boto3")
        iam = boto3.client(
            "iam",
            endpoint_url=self.url,
            region_name="us-east-1",
            **{"aws_access_key_id": "a", "aws_secret_access_key": "b"},
        )
        iam.create_user(UserName="job")
        rights = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
        }
        iam.put_user_policy(UserName="job", PolicyName="s3", PolicyDocument=json.dumps(rights))
        keys = iam.create_access_key(UserName="job")["AccessKey"]
        self._unchecked("0")
        try:
            yield {
                "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            }
        finally:
            self._unchecked("inf")

    def _unchecked(self, requests: str) -> None:
        address, kind = f"{self.url}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        asked = urllib.request.Request(address, data=requests.encode(), headers=kind)
        urllib.request.urlopen(asked).close()


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
