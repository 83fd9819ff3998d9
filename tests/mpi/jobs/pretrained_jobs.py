# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_pretrained.py, and one process for comparison."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from smdistributed.modelparallel.torch._checkpoint import pretrained_models
from smdistributed.modelparallel.torch._ranks import comm
from smdistributed.modelparallel.torch._state.own_entries import OwnEntries
from torch import nn

VOCABULARY, LENGTH, BATCH = 32, 7, 8
STEPS = 2
_GPT = {
    "vocab_size": VOCABULARY, "n_positions": 12, "n_embd": 16, "n_layer": 3, "n_head": 4,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
_LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12,
    "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
_BERT = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 12, "hidden_size": 16,
    "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def network(kind: str, seed: int = 7) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    if kind == "bert":
        return transformers.BertForMaskedLM(transformers.BertConfig(**_BERT))
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT))


def tokens(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)


@smp.step
def train_step(model, ids):
    loss = model(input_ids=ids, labels=ids).loss
    model.backward(loss)
    return loss


def wrapped(kind: str, seed: int = 7, *, delayed: bool = False) -> tuple[Any, Any]:
    with smp.delay_param_initialization(enabled=delayed):
        module = network(kind, seed)
    smp.set_tensor_parallelism(module, enabled=smp.tp_size() > 1)
    model = smp.DistributedModel(module)
    return model, smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01))


def own_part(ids: torch.Tensor) -> torch.Tensor:
    return ids.chunk(smp.dp_size())[smp.dp_rank()]


def train(model: Any, optimizer: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = train_step(model, own_part(tokens(step))).reduce_mean()
        losses.append(torch.stack(smp.allgather(loss.detach(), smp.DP_GROUP)).mean().item())
        optimizer.step()
    return losses


def largest_unit(model: Any) -> int:
    if model.sharded is None:
        return 0
    sizes = [math.prod(shape) for shape in model.sharded.shapes]
    return max(
        4 * sum(sizes[p] for p in unit["parameters"]) for unit in model.sharded.store.units()
    )


def train_and_save(
    kind: str, folder: str, size: int | str, *, delayed: bool = False
) -> dict[str, Any]:
    """Two steps, a save, and what a third one would lose; what was gathered at once."""
    model, optimizer = wrapped(kind, delayed=delayed)
    train(model, optimizer, range(STEPS))
    made: list[Any] = []
    plain = pretrained_models.WholeEntries
    pretrained_models.WholeEntries = lambda *given: made.append(plain(*given)) or made[0]
    piece, comm._PIECE_BYTES = comm._PIECE_BYTES, 1000  # so that a tensor is several
    try:
        smp.save_pretrained(model, folder, size)
    finally:
        pretrained_models.WholeEntries, comm._PIECE_BYTES = plain, piece
    entries = made[0]
    largest_tensor = max(one.like.nbytes for one in entries.entries.values())
    state = model.plain_state_dict()
    return {
        "state": {name: value.clone() for name, value in state.items()},
        "gathered": entries.largest_bytes,
        "largest_unit": largest_unit(model),
        "largest_tensor": largest_tensor,
        "losses": train(model, optimizer, range(STEPS, STEPS + 1)),
    }


def resume_and_look(kind: str, folder: str, *, delayed: bool = False) -> dict[str, Any]:
    """The whole model as it was read in the place of other values, and which entries this rank
    took."""
    model, optimizer = wrapped(kind, seed=8, delayed=delayed)
    if not delayed:
        train(model, optimizer, range(1))  # so that it is in parts
    taken: list[str] = []
    plain = OwnEntries.__getitem__
    OwnEntries.__getitem__ = lambda own, key: taken.append(key) or plain(own, key)
    try:
        smp.resume_from_checkpoint(folder, "pytorch_model.bin", partial=False, load_optimizer=False)
        if delayed:  # values are read when there is memory for them
            evaluate(model, own_part(tokens(0)))
    finally:
        OwnEntries.__getitem__ = plain
    state = {name: value.clone() for name, value in model.plain_state_dict().items()}
    local = {name for name in model.local_state_dict() if not name.startswith("_smp")}
    return {"state": state, "taken": set(taken), "local": local}


@smp.step
def evaluation_step(model, ids):
    return model(input_ids=ids, labels=ids).loss


def evaluate(model: Any, ids: torch.Tensor) -> float:
    with torch.no_grad():
        return evaluation_step(model, ids).reduce_mean().item()


def loss_of(kind: str, folder: str | None, step: int = STEPS) -> float:
    """Of a model that is read before its first step; as it is made without a folder."""
    model, _ = wrapped(kind)
    if folder is not None:
        smp.resume_from_checkpoint(folder, "model.safetensors", partial=False, load_optimizer=False)
    model.eval()
    return evaluate(model, own_part(tokens(step)))


def other_sizes(folder: str) -> str:
    model, _ = wrapped("gpt2")
    train(model, _, range(1))
    try:
        smp.save_pretrained(model, folder, 1000 + smp.rank())
    except smp.exceptions.SMPValidationError as error:
        return str(error)
    return ""


def before_the_first_step(folder: str, delayed: bool) -> str:
    model, _ = wrapped("gpt2", delayed=delayed)
    try:
        smp.save_pretrained(model, folder, 6000)
    except smp.exceptions.SMPCheckpointError as error:
        return str(error)
    return ""


def saved_after_one_step(folder: str) -> bool:
    model, optimizer = wrapped("gpt2")
    train(model, optimizer, range(1))
    smp.save_pretrained(model, folder, 6000)
    return True


def fail_in_a_shard(folder: str, how: str) -> tuple[str, list[str]]:
    """A save that rank 0 cannot finish, after one that it could: the error, and what is there."""
    model, optimizer = wrapped("gpt2")
    train(model, optimizer, range(1))
    smp.save_pretrained(model, folder, 6000)
    train(model, optimizer, range(1, 2))
    plain, count = pretrained_models.SafetensorsWriter.write, [0]

    def write(writer: Any, tensor: torch.Tensor) -> None:
        count[0] += 1
        if count[0] == 20:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise smp.exceptions.SMPCheckpointError("the disk is full")
        plain(writer, tensor)

    pretrained_models.SafetensorsWriter.write = write
    error = ""
    try:
        smp.save_pretrained(model, folder, 6000)
    except smp.exceptions.SMPCheckpointError as caught:
        error = str(caught)
    finally:
        pretrained_models.SafetensorsWriter.write = plain
    smp.barrier()
    return error, sorted(path.name for path in Path(folder).iterdir())
