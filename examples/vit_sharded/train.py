# SPDX-License-Identifier: Apache-2.0
"""A vision transformer with sharded data parallelism: the script of the third part of "Smart
Distributed Training on Amazon SageMaker with SMD", in its order, and with the indentation that the
page has lost. [A] marks each place that differs from it or is not there, and says why; types of
arguments and variables are not there either.

Small, and on the handwritten digits of scikit-learn, unless --full asks for the 630M parameters
and random images of the article. Needs transformers. With four processes:

    export SMP_DEEPSPEED_COMPAT=1
    export SM_HP_MP_PARAMETERS='{"ddp": true, "sharded_data_parallel_degree": 2,
                                 "sdp_param_persistence_threshold": 64}'
    mpirun --allow-run-as-root --oversubscribe -np 4 python train.py
"""

import argparse
import time
from typing import Any

import torch
from sklearn.datasets import load_digits  # [A] not there
from torch.utils.data import Dataset, TensorDataset  # [A] TensorDataset: of the digits
from transformers import ViTConfig, ViTForImageClassification

# [A] not there: what two cores train in seconds.
SMALL = {
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 4 * 128,
    "num_labels": 10,
}


class FakeDataset(Dataset[tuple[torch.Tensor, ...]]):
    def __len__(self) -> int:
        return 1000000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        rand_image = torch.randn([3, 224, 224], dtype=torch.float32)
        # [A] data=[index % 1000] there: the loss takes one number a sample, not a list of one.
        label = torch.tensor(data=index % 1000, dtype=torch.int64)
        return rand_image, label


# [A] not there: images that a small model learns from; each replica has a share.
def own_digits(replica: int, replicas: int) -> TensorDataset:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    own = torch.arange(replica, len(images), replicas)
    return TensorDataset(images[own], torch.tensor(digits.target)[own])


def build_model(full: bool) -> ViTForImageClassification:  # [A] no argument there
    model_args = {
        "image_size": 224,  # [A] 256 there, which its own images of 224 do not fit
        "patch_size": 16,
        "hidden_size": 1024,
        "num_hidden_layers": 50,
        "num_attention_heads": 16,
        "intermediate_size": 4 * 1024,
        "num_labels": 1000,
    }
    # [A] always model_args there
    model = ViTForImageClassification(ViTConfig(**(model_args if full else SMALL)))
    return model  # noqa: RET504 - as there


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", default="/tmp", type=str)
    # [A] not there: one size, of which it trains on the whole million of images.
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, help="samples a rank; 4 with --full, 8 without")
    args, _ = parser.parse_known_args()

    # init
    import smdistributed.modelparallel.torch as smp

    smp.init()
    # [A] no try there: it turns off a check of DeepSpeed's, which is not used here. The import
    # works with SMP_DEEPSPEED_COMPAT=1, as in the image; without, there is nothing to turn off.
    try:
        from deepspeed.runtime.zero import stage3

        stage3.assert_ints_same_as_other_ranks = lambda x: None
    except ModuleNotFoundError:
        if smp.rank() == 0:
            print("no deepspeed to patch: going without; SMP_DEEPSPEED_COMPAT=1 offers its name")

    # [A] no conditions there: it has GPUs.
    device: str | int = "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(smp.local_rank())
        device = torch.cuda.current_device()

    if not args.full:
        torch.manual_seed(1)  # [A] not there: losses of two runs can be compared
    # [A] always FakeDataset there
    dataset = FakeDataset() if args.full else own_digits(smp.dp_rank(), smp.dp_size())
    data_loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=args.batch or (4 if args.full else 8),  # [A] 4 there
        num_workers=12 if args.full else 0,  # [A] 12 there; the digits are in memory
        drop_last=True,  # [A] not there: some replicas have a digit more
    )

    model = build_model(args.full)
    model = smp.DistributedModel(model)
    # add checkpoint activation
    # [A] vit.encoder.layer there: newer transformers call the list vit.layers.
    vit: Any = model.get_module().vit
    layers = vit.layers if hasattr(vit, "layers") else vit.encoder.layer
    for m in layers.children():
        smp.set_activation_checkpointing(m)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters())
    optimizer = smp.DistributedOptimizer(optimizer)
    loss_function = torch.nn.CrossEntropyLoss()
    model.train()
    t0 = time.perf_counter()
    summ = 0.0
    count = 0

    @smp.step
    def train_step(
        model: smp.DistributedModel, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        outputs = model(inputs)
        loss: torch.Tensor = loss_function(outputs["logits"], targets)
        model.backward(loss)
        return loss

    for idx, (inputs, targets) in enumerate(data_loader, start=1):
        if idx > args.steps:  # [A] not there: a million images
            break
        # [A] torch.cuda.current_device() there, twice
        inputs = inputs.to(device)  # noqa: PLW2901 - as there
        targets = targets.to(device)  # noqa: PLW2901
        optimizer.zero_grad()
        loss_mb = train_step(model, inputs, targets)
        loss = loss_mb.reduce_mean()
        optimizer.step()
        if torch.distributed.get_rank() == 0:
            batch_time = time.perf_counter() - t0
            # [A] no loss there
            print(f"step: {idx}: step time is {batch_time}, loss {loss.item():.4f}")
            if idx > 1:  # skip first step
                summ += batch_time
                count += 1
        t0 = time.perf_counter()  # [A] not there: a step's time would be that of all before, too
    if torch.distributed.get_rank() == 0:
        print(f"average step time: {summ / max(count, 1)}")  # [A] no max there: --steps 1
        print(f"memory: {smp.memory_summary()}")  # [A] not there
