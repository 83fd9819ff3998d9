# SPDX-License-Identifier: Apache-2.0
"""A cloud for the SDKs: moto on an address that the containers reach too, and no telemetry.

Runs in the SDKs' own environments, never in .venv.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# As the README tells users to write it.
CONFIG = """\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
"""


def machine_address() -> str:
    """The address of this machine on its network; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
    return address


@contextmanager
def cloud(bucket: str) -> Iterator[str]:
    """Serves S3, STS and the like; the environment names it for boto3 and for the containers."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        os.environ |= {
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        from moto.server import ThreadedMotoServer  # noqa: PLC0415  # after the environment

        server = ThreadedMotoServer(ip_address=machine_address(), port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
            import boto3  # noqa: PLC0415

            place = {"LocationConstraint": "eu-central-1"}
            boto3.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
            yield f"s3://{bucket}"
        finally:
            server.stop()
