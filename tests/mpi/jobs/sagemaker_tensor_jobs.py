# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker_tensor_parallel.py: scripts of SMP v2 with tensor parallelism,
and what one process computes of the same model, which nothing has split."""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import smdistributed.sagemaker  # noqa: F401 - the finder of the next one, also without .pth
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
import transformers
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.api import ShardedOptimStateDictConfig
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.sagemaker import transform
from torch.sagemaker.delayed_param import DelayedParamIniter
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.tensor_parallel.transformer import TransformerLayer
from torch.sagemaker.utils.process_group_utils import get_global_ranks

BATCH, LENGTH, VOCABULARY = 2, 6, 32
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "tie_word_embeddings": False}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "llama3": ("Llama", {**_GROUPED, "rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**_GROUPED, "sliding_window": 3}),
    "gptneox": ("GPTNeoX", {**_SIZES, "hidden_size": 32}),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 6}),
}


def made(kind: str, **more: Any) -> Any:
    """The model, the same in every process."""
    torch.manual_seed(7)
    family, options = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**options, **more)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():  # norms and biases begin as 1 and 0, with which mistakes would not show
        for parameter in model.parameters():
            if not parameter.is_meta:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model.train()


def batch(step: int, share: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + share)
    words = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = torch.ones_like(words)
    mask[::2, -2:] = 0
    return {"input_ids": words, "attention_mask": mask, "labels": words}


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # Without a floor, gradients that are zero but for rounding would be made whole steps.
    return torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)


MAX_NORM = 0.5
Numbers = tuple[list[tuple[float, float]], dict[str, torch.Tensor]]


def alone(kind: str, shares: int, steps: int = 3) -> Numbers:
    """Losses, norms of gradients and values of one process, which has the batches of all."""
    torch.set_num_threads(1)
    model = made(kind)
    optimizer = _optimizer(model)
    numbers = []
    for step in range(steps):
        optimizer.zero_grad()
        losses = [model(**batch(step, share)).loss for share in range(shares)]
        loss = torch.stack(losses).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        numbers.append((loss.item(), norm.item()))
    return numbers, model.state_dict()


_scripts = itertools.count()  # the same on all ranks of a pool


@contextmanager
def script(config: dict[str, Any], folder: str) -> Iterator[None]:
    """A script with these settings, which initialises PyTorch itself."""
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    if smp.is_initialized():  # by the pool, for its own jobs
        smp.barrier()  # no rank leaves while another one still connects
        smp.shutdown()
    tsm.state.reset()  # of a script that has failed
    store = f"file://{folder}/store{next(_scripts)}of{size}"
    dist.init_process_group("gloo", store, rank=rank, world_size=size)
    try:
        tsm.init(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of FSDP1 as a whole
            yield
        dist.barrier()
    finally:
        tsm.state.reset()
        dist.destroy_process_group()


class Training:
    """A model, split and wrapped, and its optimizer, as a script of SMP v2 makes them."""

    def __init__(
        self,
        model: nn.Module,
        orig_params: bool = True,
        reentrant: bool | None = None,
        initer: DelayedParamIniter | None = None,
        from_rank0: bool = False,
    ) -> None:
        self.split = transform(model, load_state_dict_from_rank0=from_rank0)
        if initer is None and any(one.is_meta for one in self.split.parameters()):
            initer = DelayedParamIniter(self.split)
        validated = nullcontext() if initer is None else initer.validate_params_and_buffers_inited()
        with validated:
            self.model: nn.Module = FSDP(
                self.split,
                auto_wrap_policy=functools.partial(
                    transformer_auto_wrap_policy, transformer_layer_cls={TransformerLayer}
                ),
                sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                use_orig_params=orig_params,
                param_init_fn=None if initer is None else initer.get_param_init_fn(),
                post_param_init_fn=None if initer is None else initer.get_post_param_init_fn(),
                sync_module_states=from_rank0,
            )
        if reentrant is not None:
            how = CheckpointImpl.REENTRANT if reentrant else CheckpointImpl.NO_REENTRANT
            apply_activation_checkpointing(
                self.model,
                checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=how),
                check_fn=lambda module: isinstance(module, TransformerLayer),
            )
            self.model = offload_wrapper(self.model)
        self.optimizer = _optimizer(self.model)

    def steps(self, first: int, last: int) -> list[tuple[float, float]]:
        """Loss over all batches and norm of the gradients, of each step."""
        numbers = []
        share = dist.get_rank() // tsm.state.tp_size
        for step in range(first, last):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.model(**batch(step, share))["loss"]
            loss.backward()
            norm = clip_grad_norm_(self.model, MAX_NORM)
            self.optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            numbers.append((mean.item() / dist.get_world_size(), norm.item()))
        return numbers

    def whole(self, rank0_only: bool = False, **options: Any) -> dict[str, torch.Tensor]:
        how = FullStateDictConfig(rank0_only=rank0_only, offload_to_cpu=rank0_only, **options)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, how):
            return {name: one.clone() for name, one in self.model.state_dict().items()}


def trained(config: dict[str, Any], folder: str, kind: str, **options: Any) -> Numbers:
    with script(config, folder):
        training = Training(made(kind), **options)
        return training.steps(0, 3), training.whole()


def again(config: dict[str, Any], folder: str, kind: str) -> list[Numbers]:
    """Two jobs in one process, one after the other."""
    return [trained(config, folder, kind) for _ in range(2)]


# --- Checkpoints ---------------------------------------------------------------------------------


def saved_whole(config: dict[str, Any], folder: str, kind: str) -> bool:
    """A full checkpoint of a model that was not trained. True on ranks that have its values."""
    with script(config, folder):
        training = Training(made(kind))
        values = training.whole(rank0_only=True, translate_on_save=True)
        if dist.get_rank() == 0:
            torch.save(values, Path(folder) / "pytorch_model.bin")
            training.split.config.save_pretrained(folder)
        return bool(values)


def _place(folder: str) -> Path:
    return Path(folder) / f"tp{tsm.state.tp_size}-{tsm.state.tp_rank}"


def _save(training: Training, folder: str) -> None:
    group = training.model.process_group
    with FSDP.state_dict_type(training.model, StateDictType.SHARDED_STATE_DICT):
        content = {
            "optimizer": FSDP.optim_state_dict(training.model, training.optimizer),
            "model": training.model.state_dict(),
        }
    if tsm.state.ranker.get_rep_rank(dist.get_rank()) == 0:
        checkpoint.save_state_dict(
            state_dict=content,
            storage_writer=checkpoint.FileSystemWriter(_place(folder)),
            planner=checkpoint.DefaultSavePlanner(),
            process_group=group,
            coordinator_rank=min(get_global_ranks(group)),
        )
    dist.barrier()


def _load(training: Training, folder: str) -> None:
    group = training.model.process_group
    with FSDP.state_dict_type(
        training.model,
        StateDictType.SHARDED_STATE_DICT,
        optim_state_dict_config=ShardedOptimStateDictConfig(offload_to_cpu=True),
    ):
        content = {"model": training.model.state_dict()}
        checkpoint.load_state_dict(
            state_dict=content,
            storage_reader=checkpoint.FileSystemReader(_place(folder)),
            planner=checkpoint.DefaultLoadPlanner(),
            process_group=group,
            coordinator_rank=min(get_global_ranks(group)),
        )
        training.model.load_state_dict(content["model"])
        found = load_sharded_optimizer_state_dict(
            model_state_dict=content["model"],
            optimizer_key="optimizer",
            storage_reader=checkpoint.FileSystemReader(_place(folder)),
            process_group=group,
        )
        training.optimizer.load_state_dict(
            FSDP.optim_state_dict_to_load(
                model=training.model, optim=training.optimizer, optim_state_dict=found["optimizer"]
            )
        )


def resumed(config: dict[str, Any], folder: str, kind: str) -> tuple[Numbers, Numbers]:
    """Steps behind a sharded checkpoint, of the job that wrote it and of one that reads it."""
    with script(config, folder):
        training = Training(made(kind))
        training.steps(0, 2)
        _save(training, folder)
        unbroken = training.steps(2, 4), training.whole()
    with script(config, folder):
        training = Training(made(kind))
        _load(training, folder)
        return unbroken, (training.steps(2, 4), training.whole())


def loaded_whole(config: dict[str, Any], folder: str, kind: str) -> bool:
    """True if a model has the values of a full state dict that is loaded after it was wrapped."""
    with script(config, folder):
        training = Training(made(kind))
        values = {name: 2 * one for name, one in made(kind).state_dict().items()}
        how = FullStateDictConfig(rank0_only=False)
        with FSDP.state_dict_type(training.model, StateDictType.FULL_STATE_DICT, how):
            training.model.load_state_dict(values)
        whole = training.whole()
        return all(torch.equal(whole[name], value) for name, value in values.items())


# --- First values --------------------------------------------------------------------------------


def of_rank0(config: dict[str, Any], folder: str, kind: str, delayed: bool) -> Numbers:
    """A model of which rank 0 alone has the values; others have no storage, or values of their
    own."""
    with script(config, folder):
        first = dist.get_rank() == 0
        with nullcontext() if first or not delayed else torch.device("meta"):
            model = made(kind)
        if not first and not delayed:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(dist.get_rank())
        training = Training(model, from_rank0=True)
        return training.steps(0, 3), training.whole()


def delayed(config: dict[str, Any], folder: str, kind: str) -> dict[str, torch.Tensor]:
    """First values of a model that no rank has any of."""
    with script(config, folder):
        with torch.device("meta"):
            model = made(kind)
        return Training(model).whole()


def of_other_seeds(config: dict[str, Any], folder: str, kind: str) -> Numbers:
    """A model that each rank drew for itself: a group's is that of its first rank."""
    with script(config, folder):
        model = made(kind)
        if dist.get_rank() % 2:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.normal_()
        training = Training(model)
        return training.steps(0, 3), training.whole()


# --- Random numbers ------------------------------------------------------------------------------


def with_dropout(
    config: dict[str, Any], folder: str, reentrant: bool | None
) -> tuple[Numbers, list[list[float]]]:
    """A model that drops, and what the ranks draw inside and outside of the tracker's fork."""
    with script(config, folder):
        model = made("gptneox", hidden_dropout=0.2, attention_dropout=0.2)
        training = Training(model, reentrant=reentrant)
        torch.manual_seed(11)
        numbers = training.steps(0, 3)
        torch.manual_seed(5)
        with tsm.state.get_rng_state_tracker().fork():
            inside = torch.rand(3).tolist()
        return (numbers, training.whole()), [inside, torch.rand(3).tolist()]


# --- Refusals ------------------------------------------------------------------------------------


def refusals(config: dict[str, Any], folder: str) -> dict[str, str]:
    """Errors by what was wrong."""
    with script(config, folder):
        found = {name: _error(act) for name, act in _WRONG.items()}
        tsm.state.compares_batches = False
        training = Training(made("llama"))
        training.model(**batch(0, dist.get_rank()))  # other batches, which nothing compares
        return found


def _error(act: Any) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _gpt2() -> None:
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9)
    transform(transformers.GPT2LMHeadModel(config))


def _one_head() -> None:
    config = transformers.LlamaConfig(**{**_GROUPED, "num_key_value_heads": 1})
    transform(transformers.LlamaForCausalLM(config))


def _changing_positions() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}
    config = transformers.LlamaConfig(**_GROUPED, rope_parameters=rope)
    transform(transformers.LlamaForCausalLM(config))


def _batches() -> None:
    Training(made("llama")).model(**batch(0, dist.get_rank()))


def _half() -> None:
    Training(made("llama").bfloat16())


def _unsynced() -> None:
    FSDP(transform(made("llama"), load_state_dict_from_rank0=True))


def _values_of_one() -> None:
    with nullcontext() if dist.get_rank() == 0 else torch.device("meta"):
        model = made("llama")
    transform(model)


def _optimizer_whole() -> None:
    training = Training(made("llama"))
    training.steps(0, 1)
    how = FullStateDictConfig(rank0_only=False)
    with FSDP.state_dict_type(training.model, StateDictType.FULL_STATE_DICT, how):
        FSDP.optim_state_dict(training.model, training.optimizer)


_WRONG: dict[str, Any] = {
    "architecture": _gpt2,
    "heads": _one_head,
    "positions": _changing_positions,
    "batches": _batches,
    "type": _half,
    "not transformed": lambda: FSDP(made("llama")),
    "not synced": _unsynced,
    "values of one": _values_of_one,
    "whole optimizer": _optimizer_whole,
}


def session_of_the_script() -> str:
    """Error of a script that has initialised the library of SMP v1, too."""
    tsm.state.reset()
    tsm.init({"tensor_parallel_degree": 2})
    try:
        return _error(lambda: transform(made("llama")))
    finally:
        tsm.state.reset()
