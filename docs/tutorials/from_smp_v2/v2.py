"""A script of SMP v2: GPT-2 of Hugging Face learns the text of Python's manual, byte by byte, by
FSDP1 with hybrid shards. It assumes GPUs."""

import argparse
import os
from pydoc_data.topics import topics

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed import checkpoint
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from torch.sagemaker.distributed.checkpoint.state_dict_saver import async_save
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.utils.process_group_utils import get_global_ranks
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

LENGTH = 64


def batch(text, step, size):
    """Pieces of the text, others for each data-parallel rank."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    starts = torch.randint(0, len(text) - LENGTH, (size,), generator=generator)
    return torch.stack([text[start : start + LENGTH] for start in starts.tolist()])


def make_model(args):
    if args.pretrained and not args.resume:
        return AutoModelForCausalLM.from_pretrained(args.pretrained)
    if args.pretrained:
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.pretrained))
    sizes = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 4}
    config = GPT2Config(vocab_size=256, bos_token_id=0, eos_token_id=0, **sizes)
    return AutoModelForCausalLM.from_config(config)


def save(model, optimizer, scheduler, step, folder, queue):
    """The ranks of the first shard group write; their copies hold the same."""
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        content = {
            "model": model.state_dict(),
            "optimizer": FSDP.optim_state_dict(model, optimizer),
            "scheduler": scheduler.state_dict(),
            "total_steps": step,
        }
    if tsm.state.ranker.get_rep_rank(dist.get_rank()) == 0:
        group = model.process_group
        coordinator = min(get_global_ranks(group))
        async_save(content, checkpoint_id=folder, process_group=group,
                   coordinator_rank=coordinator, queue=queue)  # fmt: skip


def load(model, optimizer, scheduler, folder):
    group = model.process_group
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        content = {
            "model": model.state_dict(),
            "scheduler": scheduler.state_dict(),
            "total_steps": 0,
        }
        checkpoint.load_state_dict(
            content,
            checkpoint.FileSystemReader(folder),
            process_group=group,
            coordinator_rank=min(get_global_ranks(group)),
        )
        model.load_state_dict(content["model"])
        scheduler.load_state_dict(content["scheduler"])
        loaded = load_sharded_optimizer_state_dict(
            content["model"], "optimizer", checkpoint.FileSystemReader(folder), process_group=group
        )
        state = FSDP.optim_state_dict_to_load(model, optimizer, loaded["optimizer"])
        optimizer.load_state_dict(state)
    return content["total_steps"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pretrained", help="a folder of Hugging Face")
    parser.add_argument("--resume", help="a sharded checkpoint")
    parser.add_argument("--checkpoint_dir", default=os.environ.get("SM_CHECKPOINT_DIR"))
    parser.add_argument("--model_dir", default=os.environ.get("SM_MODEL_DIR"))
    args, _ = parser.parse_known_args()

    # [model]
    dist.init_process_group("smddp")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    tsm.init()
    torch.manual_seed(1)
    model = FSDP(
        tsm.transform(make_model(args)),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({GPT2Block}),
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
        sync_module_states=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    queue = AsyncCallsQueue()
    done = load(model, optimizer, scheduler, args.resume) if args.resume else 0
    # [end model]

    text = torch.tensor(list("\n\n".join(topics[name] for name in sorted(topics)).encode()))
    for step in range(done + 1, args.steps + 1):
        ids = batch(text, step, 8).to(torch.cuda.current_device())
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(model, 1.0)
        optimizer.step()
        scheduler.step()
        dist.all_reduce(loss)
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item() / dist.get_world_size():.4f}", flush=True)
        if args.checkpoint_dir and step % 20 == 0:
            save(model, optimizer, scheduler, step, f"{args.checkpoint_dir}/{step}steps", queue)
    queue.maybe_finalize_async_calls(blocking=True)

    options = FullStateDictConfig(rank0_only=True, offload_to_cpu=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, options):
        state = model.state_dict()
    if args.model_dir and dist.get_rank() == 0:
        torch.save(state, f"{args.model_dir}/pytorch_model.bin")
        model.module.config.save_pretrained(args.model_dir)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
