"""Learns handwritten digits with a model that is split over processes."""

import smdistributed.modelparallel.torch as smp
import torch
from sklearn.datasets import load_digits

smp.init()
if torch.cuda.is_available():
    torch.cuda.set_device(smp.local_rank())
torch.manual_seed(0)  # every process builds the same model and draws the same batches

images, digits = map(torch.tensor, load_digits(return_X_y=True))  # 1,797 images of 8 x 8 pixels
order = torch.randperm(len(images))  # neighbours were written by one person
images, digits = images[order].float() / 16, digits[order]

layers = torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
model = smp.DistributedModel(torch.nn.Sequential(*layers))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))


@smp.step  # splits the batch into microbatches and runs once for each
def train_step(model, images, digits):
    loss = torch.nn.functional.cross_entropy(model(images), digits)
    model.backward(loss)
    return loss


@smp.step
def test_step(model, images, digits):
    return (model(images).argmax(dim=1) == digits).float()


for epoch in range(1, 11):
    for batch in torch.randperm(1536).split(64):
        own = batch[smp.dp_rank() :: smp.dp_size()]  # the share of this replica of the model
        optimizer.zero_grad()
        losses = train_step(model, images[own], digits[own])  # a StepOutput: one per microbatch
        optimizer.step()
    with torch.no_grad():
        right = test_step(model, images[-256:], digits[-256:])
    if smp.rank() == 0:
        loss, accuracy = losses.reduce_mean(), right.concat().mean()
        print(f"epoch {epoch:2}: loss {loss:.3f}, test accuracy {accuracy:.1%}", flush=True)
