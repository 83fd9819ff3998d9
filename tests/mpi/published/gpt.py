# SPDX-License-Identifier: Apache-2.0
"""A small GPT, in the way in which language-model scripts of 2022 use the library: a dict of
settings, layers placed by hand, checkpointed activations, placeholders instead of data on other
partitions, whole checkpoints. The text is Python's own on its language."""

import argparse
import json
import os
import pydoc_data.topics

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x, attention_mask=None):
        b, s, w = x.shape
        q, k, v = self.c_attn(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(x.transpose(1, 2).reshape(b, s, w))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = smp.nn.FusedLayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = smp.nn.FusedLayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, heads, depth, positions):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.ln_f = smp.nn.FusedLayerNorm(width)

    def forward(self, ids):
        return self.ln_f(self.h(self.wte(ids) + self.wpe.weight[: ids.shape[1]]))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=128, width=32, heads=4, depth=4, positions=32):
        super().__init__()
        self.transformer = Transformer(vocabulary, width, heads, depth, positions)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.1)

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.lm_head(self.transformer(input_ids))
        loss = F.cross_entropy(
            logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1)
        )
        return {"loss": loss, "logits": logits}


def param_groups(model):
    """Weight decay for all but biases and layer norms."""
    decay, rest = {"params": []}, {"params": [], "weight_decay": 0.0}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            plain = isinstance(module, smp.nn.FusedLayerNorm) or name == "bias"
            (rest if plain else decay)["params"].append(parameter)
    for group in (decay, rest):
        group["params"] = list(dict.fromkeys(group["params"]))
    return decay, rest


@smp.step
def train_step(model, optimizer, input_ids, attention_mask, args):
    loss = model(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"]
    model.backward(loss)
    return loss


@smp.step
def test_step(model, input_ids, attention_mask):
    return model(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"]


class Placeholders(torch.utils.data.Dataset):
    """Dataset of other partitions: as many batches, of nothing."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.empty(0), torch.empty(0)


def make_loader(args):
    """Data on pp rank 0; the others learn its length."""
    if smp.pp_rank() == 0:
        text = "".join(pydoc_data.topics.topics.values())
        ids = torch.tensor([min(ord(letter), 127) for letter in text])
        samples = ids[: len(ids) // 32 * 32].view(-1, 32)[: args.samples]
        own = samples[smp.dp_rank() :: smp.dp_size()]
        data = torch.utils.data.TensorDataset(own, torch.ones_like(own))
        if smp.pp_size() > 1:
            smp.broadcast(len(data), smp.PP_GROUP)
    else:
        data = Placeholders(smp.recv_from(0, smp.RankType.PP_RANK))
    batch = args.batch_size // smp.dp_size()
    return torch.utils.data.DataLoader(data, batch_size=batch, drop_last=True, pin_memory=True)


def train(args, model, optimizer, scheduler, start, losses):
    step = 0
    model.train()
    while step < args.max_steps:
        for input_ids, attention_mask in make_loader(args):
            step += 1
            if step <= start:
                continue
            optimizer.zero_grad(set_to_none=True)
            loss_mb = train_step(model, optimizer, input_ids, attention_mask, args)
            loss = loss_mb.reduce_mean()
            if args.clip_one:
                torch.nn.utils.clip_grad_norm_(list(model.local_parameters()) or [], 1e9)
            optimizer.step()
            if not optimizer.overflow:
                scheduler.step()
            if smp.dp_size() > 1:
                torch.distributed.all_reduce(loss, group=smp.get_dp_process_group())
                loss /= smp.dp_size()
            losses.append(loss.item())
            if step == args.save_at:
                smp.save_checkpoint(
                    args.checkpoints,
                    tag=f"trained_gpt_step{step}",
                    partial=True,
                    model=model,
                    optimizer=optimizer,
                    user_content={"total_steps": step, "lr": scheduler.state_dict()},
                    num_kept_partial_checkpoints=2,
                )
            if step >= args.max_steps:
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--checkpoints", default="")
    parser.add_argument("--save_at", type=int, default=-1)
    parser.add_argument("--resume", type=int, default=0)
    parser.add_argument("--strategy", default="each")
    parser.add_argument("--manual", type=int, default=0)
    parser.add_argument("--clip_one", type=int, default=0)
    parser.add_argument("--out", default=".")
    parser.add_argument("--mp_parameters", default="")
    args, _ = parser.parse_known_args()

    config = {"ddp": True, "microbatches": 2, "optimize": "speed", "fast_mode": 0, "static_mode": 0}
    if args.manual:
        config |= {"auto_partition": False, "default_partition": 0}
    smp.init(config)
    torch.manual_seed(7)
    with smp.model_creation(tensor_parallelism=False, dtype=torch.float64, flash_attention=False):
        model = LanguageModel()
    model = smp.DistributedModel(model, trace_device="gpu", backward_passes_per_step=1)
    m = model.get_module()
    layers = m.transformer.h
    if args.manual:
        for number, layer in enumerate(layers.children()):
            smp.set_partition(layer, number * smp.pp_size() // len(layers))
    optimizer = torch.optim.AdamW(param_groups(m), lr=0.01, weight_decay=0.01)
    smp.set_activation_checkpointing(layers, pack_args_as_tuple=True, strategy=args.strategy)
    optimizer = smp.DistributedOptimizer(
        optimizer, static_loss_scale=None, dynamic_loss_scale=True,
        dynamic_loss_args={"scale_window": 1000, "min_scale": 1, "delayed_shift": 2},
    )  # fmt: skip
    model.register_post_partition_hook(lambda model, optimizer: print("partitioned", flush=True))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.98**step)
    start = 0
    if args.resume:
        content = smp.resume_from_checkpoint(args.checkpoints, tag=None, partial=True)
        start = content["total_steps"]
        scheduler.load_state_dict(content["lr"])
    losses = []
    train(args, model, optimizer, scheduler, start, losses)
    model.eval()
    with torch.no_grad():
        for input_ids, attention_mask in make_loader(args):
            held = test_step(model, input_ids, attention_mask).reduce_mean().item()
            break
    smp.save_checkpoint(
        os.path.join(args.out, "whole"), tag="fullmodel.pt", partial=False, model=model,
        user_content={"total_steps": args.max_steps},
    )  # fmt: skip
    if smp.rank() == 0:
        with open(os.path.join(args.out, "results.json"), "w") as file:
            json.dump({"losses": losses, "held": held}, file)
    smp.barrier()


if __name__ == "__main__":
    main()
