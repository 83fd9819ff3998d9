# SPDX-License-Identifier: Apache-2.0
"""A vision transformer with sharded data parallelism, after the third part of "Smart Distributed
Training on Amazon SageMaker with SMD". What the article's script could not run with is marked [A].

Small, and on the handwritten digits of scikit-learn, unless --full asks for the 630M parameters
and random images of the article. Needs transformers. With four processes:

    export SM_HP_MP_PARAMETERS='{"ddp": true, "sharded_data_parallel_degree": 2,
                                 "sdp_param_persistence_threshold": 64}'
    mpirun --allow-run-as-root --oversubscribe -np 4 python train.py
"""

from __future__ import annotations

import argparse
import time

import smdistributed.modelparallel.torch as smp
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import ViTConfig, ViTForImageClassification

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
FULL = {
    "image_size": 224,  # [A] 256 there, which its own images of 224 do not fit
    "patch_size": 16,
    "hidden_size": 1024,
    "num_hidden_layers": 50,
    "num_attention_heads": 16,
    "intermediate_size": 4 * 1024,
    "num_labels": 1000,
}


class FakeDataset(Dataset):
    def __len__(self):
        return 1000000

    def __getitem__(self, index):
        rand_image = torch.randn([3, 224, 224], dtype=torch.float32)
        label = torch.tensor(index % 1000)  # [A] of shape [1] there: the loss takes one number
        return rand_image, label


def make_loader(full: bool, batch: int) -> DataLoader:
    if full:
        return DataLoader(FakeDataset(), batch_size=batch)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    mine = torch.arange(smp.dp_rank(), len(images), smp.dp_size())
    dataset = TensorDataset(images[mine], torch.tensor(digits.target)[mine])
    return DataLoader(dataset, batch_size=batch, drop_last=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    args, _ = parser.parse_known_args()

    smp.init()
    torch.manual_seed(1)
    model = ViTForImageClassification(ViTConfig(**(FULL if args.full else SMALL)))
    model = smp.DistributedModel(model)
    # [A] vit.encoder.layer there: newer transformers name the list otherwise.
    vit = model.get_module().vit
    for layer in getattr(vit, "layers", None) or vit.encoder.layer:
        smp.set_activation_checkpointing(layer)
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    loss_function = torch.nn.CrossEntropyLoss()
    model.train()

    @smp.step
    def train_step(model, inputs, targets):
        outputs = model(inputs)
        loss = loss_function(outputs["logits"], targets)
        model.backward(loss)
        return loss

    began, total, count = time.perf_counter(), 0.0, 0
    for step, (inputs, targets) in enumerate(make_loader(args.full, args.batch), start=1):
        if step > args.steps:  # [A] a million images there
            break
        optimizer.zero_grad()
        loss = train_step(model, inputs, targets).reduce_mean()
        optimizer.step()
        seconds = time.perf_counter() - began
        if smp.rank() == 0:
            print(f"step: {step}: step time is {seconds:.4f}, loss {loss.item():.4f}")
            if step > 1:  # skip first step
                total, count = total + seconds, count + 1
        began = time.perf_counter()
    if smp.rank() == 0:
        print(f"average step time: {total / max(count, 1):.4f}")
        print(f"memory: {smp.memory_summary()}")


if __name__ == "__main__":
    main()
