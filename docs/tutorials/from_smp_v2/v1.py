"""A job of SMP v1 that leaves a checkpoint: GPT-2, its layers split over two tensor-parallel ranks,
learns the text of Python's manual."""

import os
from pydoc_data.topics import topics

import smdistributed.modelparallel.torch as smp
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH = 64


@smp.step
def train_step(model, ids):
    loss = model(input_ids=ids, labels=ids)["loss"]
    model.backward(loss)
    return loss


def main():
    smp.init({"ddp": True, "tensor_parallel_degree": 2, "microbatches": 2})
    torch.manual_seed(1)
    sizes = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 4}
    with smp.model_creation(tensor_parallelism=True):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes))
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

    text = torch.tensor(list("\n\n".join(topics[name] for name in sorted(topics)).encode()))
    for step in range(1, 41):
        generator = torch.Generator().manual_seed(1000 * step + smp.dp_rank())
        starts = torch.randint(0, len(text) - LENGTH, (8,), generator=generator)
        ids = torch.stack([text[start : start + LENGTH] for start in starts.tolist()])
        optimizer.zero_grad()
        loss = train_step(model, ids).reduce_mean()
        optimizer.step()
        scheduler.step()
        if smp.rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    content = {"lr_scheduler": scheduler.state_dict(), "total_steps": 40}
    smp.save_checkpoint(os.environ["FOLDER"], "step_40", user_content=content)


if __name__ == "__main__":
    main()
