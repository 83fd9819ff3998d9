# SPDX-License-Identifier: Apache-2.0
"""A training job through the SageMaker Python SDK 2.x in local mode, as a user writes it.

usage: v2_job.py IMAGE HOSTS CODE DATA OUT

The data come from S3 (moto). The script is mounted, which the SDK calls local_code.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cloud import cloud


def main() -> None:
    image, hosts, code, data, out = sys.argv[1:]
    with cloud("jobs") as bucket:
        from sagemaker.local import LocalSession  # noqa: PLC0415  # it reads the environment
        from sagemaker.pytorch import PyTorch  # noqa: PLC0415

        session = LocalSession(default_bucket="jobs")
        root = Path(out) / "containers"
        root.mkdir(parents=True)
        session.config = {"local": {"container_root": str(root), "local_code": True}}
        channel = session.upload_data(data, bucket="jobs", key_prefix="digits")
        estimator = PyTorch(
            image_uri=image,
            source_dir=str(Path(code).resolve()),
            entry_point="train.py",
            role="arn:aws:iam::123456789012:role/anyone",
            instance_count=int(hosts),
            instance_type="local",
            hyperparameters={"epochs": 2},
            output_path=f"file://{out}/result",
            sagemaker_session=session,
            distribution={
                "smdistributed": {
                    "modelparallel": {
                        "enabled": True,
                        "parameters": {
                            "pipeline_parallel_degree": 2,
                            "microbatches": 4,
                            "ddp": True,
                        },
                    }
                },
                "mpi": {"enabled": True, "processes_per_host": 2},
            },
        )
        estimator.fit({"train": channel})
        print("bucket", bucket, "model", estimator.model_data)
        archive = Path(str(estimator.model_data).removeprefix("file://"))
        with tarfile.open(archive) as tar:
            print("members", sorted(tar.getnames()))
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
