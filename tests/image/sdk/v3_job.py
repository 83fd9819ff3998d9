# SPDX-License-Identifier: Apache-2.0
"""A training job through the SageMaker Python SDK 3.x in local container mode, on one host.

usage: v3_job.py IMAGE CODE DATA OUT

ModelTrainer never calls the image's `train`: it brings drivers of its own and needs bash, pip and
torchrun of the image. Its MPI cannot work in local mode, not even on one host: it names an
interface that no container has ("ethwe"). So torchrun starts the two processes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cloud import cloud

PARAMETERS = {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True}


def main() -> None:
    image, code, data, out = sys.argv[1:]
    with cloud("jobs"):
        from sagemaker.core.helper.session_helper import Session  # noqa: PLC0415
        from sagemaker.train import ModelTrainer  # noqa: PLC0415  # it reads the environment
        from sagemaker.train.configs import Compute, InputData, SourceCode  # noqa: PLC0415
        from sagemaker.train.distributed import Torchrun  # noqa: PLC0415
        from sagemaker.train.model_trainer import Mode  # noqa: PLC0415

        root = Path(out) / "containers"
        root.mkdir(parents=True)
        trainer = ModelTrainer(
            training_mode=Mode.LOCAL_CONTAINER,
            sagemaker_session=Session(default_bucket="jobs"),
            training_image=image,
            role="arn:aws:iam::123456789012:role/anyone",
            source_code=SourceCode(source_dir=code, entry_script="train.py"),
            compute=Compute(instance_type="local_cpu", instance_count=1),
            distributed=Torchrun(process_count_per_node=2),
            hyperparameters={"epochs": 2},
            # As a hyperparameter they would become an argument of the script as well.
            environment={"SM_HP_MP_PARAMETERS": json.dumps(PARAMETERS)},
            local_container_root=str(root),
        )
        trainer.train(input_data_config=[InputData(channel_name="train", data_source=data)])
        print("left", sorted(str(path.relative_to(root)) for path in root.rglob("*.pt")))


if __name__ == "__main__":
    main()
