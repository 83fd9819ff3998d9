# SPDX-License-Identifier: Apache-2.0
"""GPT-2 of Hugging Face, its layers split over tensor-parallel ranks, learns to write like Python's
manual: the text of `pydoc_data.topics`, byte by byte. Needs transformers.

With four processes, of which each two share the layers:

    export SM_HP_MP_PARAMETERS='{"ddp": true, "tensor_parallel_degree": 2}'
    mpirun --allow-run-as-root --oversubscribe -np 4 python train.py

The losses are those of any other number of processes, with tensor_parallel_degree or without: the
global batch is the same, dropout is off, and `_match_weights` makes the split layers begin with the
values of the plain ones.
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import smdistributed.modelparallel.torch as smp
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def manual() -> torch.Tensor:
    """The language reference, as numbers of bytes."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return torch.tensor(list(text.encode()), dtype=torch.long)


def global_batch(text: torch.Tensor, step: int, size: int, length: int) -> torch.Tensor:
    """`size` pieces of the text, the same on every rank."""
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(0, len(text) - length, (size,), generator=generator)
    return torch.stack([text[start : start + length] for start in starts.tolist()])


def own_share(batch: torch.Tensor) -> torch.Tensor:
    """What this rank feeds: with prescaled_batch the ranks of a tensor-parallel group the same."""
    if smp.state.cfg.prescaled_batch:
        return batch.chunk(smp.rdp_size())[smp.rdp_rank()]
    return batch.chunk(smp.dp_size())[smp.dp_rank()]


@smp.step
def train_step(model: smp.DistributedModel, ids: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=ids, labels=ids)["loss"]
    model.backward(loss)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="of all ranks together")
    parser.add_argument("--length", type=int, default=64, help="bytes in a sample")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--double", action="store_true", help="64-bit numbers, to compare runs")
    parser.add_argument("--save", help="folder for the trained model, as Hugging Face names it")
    args, _ = parser.parse_known_args()

    smp.init({"ddp": True, "_match_weights": True})
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=256,
        n_positions=args.length,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    dtype = torch.float64 if args.double else torch.float32
    with smp.model_creation(tensor_parallelism=True, dtype=dtype):
        model = GPT2LMHeadModel(config)
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3))
    model.train()

    text = manual()
    for step in range(1, args.steps + 1):
        ids = own_share(global_batch(text, step, args.batch, args.length))
        optimizer.zero_grad()
        loss = train_step(model, ids).reduce_mean()
        optimizer.step()
        losses = smp.allgather(loss.item(), smp.DP_GROUP)
        if smp.rank() == 0:
            print(f"step {step}: mean loss {sum(losses) / len(losses):.10f}", flush=True)
    if smp.rank() == 0:
        held = sum(p.numel() for p in model.local_parameters())
        print(f"this rank holds {held} elements of parameters")
    if args.save:
        smp.save_checkpoint(args.save, "pytorch_model.bin", partial=False)


if __name__ == "__main__":
    main()
