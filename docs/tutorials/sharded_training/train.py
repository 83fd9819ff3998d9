"""Learns handwritten digits; each rank keeps a shard of parameters, gradients and Adam's state."""

import argparse

import smdistributed.modelparallel.torch as smp
import torch
from sklearn.datasets import load_digits
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--save", metavar="DIR", help="checkpoint folder to write")
parser.add_argument("--resume", metavar="DIR", help="checkpoint folder to continue from")
args, _ = parser.parse_known_args()

# [init]
smp.init()
if torch.cuda.is_available():
    torch.cuda.set_device(smp.local_rank())
torch.manual_seed(0)
# [end init]

images, digits = map(torch.tensor, load_digits(return_X_y=True))
images = images.float() / 16

# [model]
layers: list[nn.Module] = [nn.Linear(64, 1024), nn.GELU()]
for _ in range(3):
    layers += [nn.Linear(1024, 1024), nn.GELU()]
model = smp.DistributedModel(nn.Sequential(*layers, nn.Linear(1024, 10)))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=5e-4))
# [end model]


@smp.step
def train_step(model, images, digits):
    loss = nn.functional.cross_entropy(model(images), digits)
    model.backward(loss)
    return loss


# [resume]
done = 0
if args.resume:
    done = smp.resume_from_checkpoint(args.resume)["epochs"]
# [end resume]

for epoch in range(1, args.epochs + 1):
    generator = torch.Generator().manual_seed(done + epoch)
    total = 0.0
    for batch in torch.randperm(1536, generator=generator).split(64):
        own = batch[smp.dp_rank() :: smp.dp_size()]
        optimizer.zero_grad()
        total += train_step(model, images[own], digits[own]).reduce_mean().item()
        optimizer.step()
    mean = sum(smp.allgather(total / 24, smp.DP_GROUP)) / smp.dp_size()
    if smp.rank() == 0:
        print(f"epoch {done + epoch}: mean loss {mean:.4f}", flush=True)

# [memory]
use = smp.memory_summary()  # bytes on this rank
if smp.rank() == 0:
    state = sum(use[name] for name in ("parameters", "persistent", "gradients", "optimizer"))
    print(f"model state of a rank: {state / 1e6:.1f} MB", flush=True)
# [end memory]

# [save]
if args.save:
    content = {"epochs": done + args.epochs}
    smp.save_checkpoint(args.save, tag="digits", user_content=content)
# [end save]
