# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_golden_checkpoints.py with models of Hugging Face: they resume from their layouts.

It also wrote those, as golden_jobs.py does the others:

    mpirun -np 2 python tests/mpi/jobs/golden_hugging_face_jobs.py FOLDER COMMIT FORM...
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import transformers
from golden_jobs import BASE, CONTENT, STEPS, TENSOR, pack, plain, text_of
from torch import nn

WORDS = 8
#: Model of a form, and how it was saved.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "hf_gpt2": ("gpt2", {}),
    "hf_gpt2_whole": ("gpt2", {"partial": False}),
    "hf_gpt2_split_names": ("gpt2", {"partial": False, "translate_if_full": False}),
    "hf_gpt2_pretrained": ("gpt2", {"pretrained": True}),
    "hf_llama": ("llama", {}),
    "hf_llama_whole": ("llama", {"partial": False}),
}


def network(kind: str) -> nn.Module:
    """One layer of two heads; nothing is random but the values."""
    if kind == "gpt2":
        sizes = {"n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 2}
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0,
                                         **sizes, **dropout)  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=4, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.copy_(torch.randint(-16, 17, parameter.shape, generator=generator) / 16)
    return model


def made(kind: str, marked: bool, lr: float = 0.125) -> tuple[Any, Any]:
    with smp.tensor_parallelism(enabled=marked):
        model = smp.DistributedModel(network(kind))
    return model, smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=lr))


@smp.step
def train_step(model, ids):
    loss = model(input_ids=ids, labels=ids).loss
    model.backward(loss)
    return loss


def train(model: Any, optimizer: Any, steps: Iterable[int]) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + smp.dp_rank())
        optimizer.zero_grad()
        train_step(model, torch.randint(0, WORDS, (4, 4), generator=generator))
        optimizer.step()


def in_plain_names(entries: dict[str, Any]) -> dict[str, Any]:
    """Names of Hugging Face, and tensors shaped as there."""
    for to_plain, _ in smp.state.module_manager.translate_functions:
        entries = to_plain(entries)
    return {name: plain(value) for name, value in sorted(entries.items())}


def state_of(model: Any, optimizer: Any, whole_model: bool) -> dict[str, Any]:
    """The model's state and, unless it is saved alone, that of the optimizer; moments by field.
    Collective."""
    entries = {"model": in_plain_names(model.state_dict())}
    if whole_model:
        return entries
    whole = optimizer.state_dict()
    names = [name for name, _ in model.named_parameters()]
    kept = {name: whole["state"].get(number, {}) for number, name in enumerate(names)}
    moments = {field: in_plain_names({n: of[field] for n, of in kept.items() if field in of})
               for field in ("exp_avg", "exp_avg_sq")}  # fmt: skip
    return {
        **entries,
        **moments,
        "step": sorted({float(of["step"]) for of in kept.values() if "step" in of}),
        "lr": [group["lr"] for group in whole["param_groups"]],
    }


def with_tied(entries: dict[str, Any]) -> dict[str, Any]:
    """Files of safetensors hold tied parameters once."""
    return {"lm_head.weight": entries.get("transformer.wte.weight"), **entries}


def resume(
    folder: str, kind: str, marked: bool, tag: str, partial: bool, first: int = 0
) -> dict[str, Any]:
    """State after the checkpoint was loaded into a model that had its first steps, or none."""
    model, optimizer = made(kind, marked, lr=7.0)
    train(model, optimizer, range(50, 50 + first))
    content = smp.resume_from_checkpoint(
        folder, tag, partial=partial, load_optimizer=partial, translate_function=with_tied
    )
    found = state_of(model, optimizer, whole_model=not partial)
    return {**found, "content": {k: plain(v) for k, v in content.items()}}


# --- The writer ---


def write(form: str, folder: Path, commit: str) -> None:
    kind, how = FORMS[form]
    smp.init({**BASE, **TENSOR})
    model, optimizer = made(kind, marked=True)
    train(model, optimizer, range(STEPS))
    if "pretrained" in how:  # as SMPTrainer.save_model
        entries = model.plain_state_dict()
        if smp.rank() == 0:
            network(kind).save_pretrained(folder, state_dict=entries)
    else:
        smp.save_checkpoint(str(folder), "golden", user_content=CONTENT, **how)
    content = {} if "pretrained" in how else {key: plain(one) for key, one in CONTENT.items()}
    expected = {"written_by": commit, "kind": kind, "how": how, "content": content,
                **state_of(model, optimizer, whole_model=bool(how))}  # fmt: skip
    if smp.rank() == 0:
        folder.with_suffix(".json").write_text(text_of(expected))
        pack(folder)
    smp.shutdown()


if __name__ == "__main__":
    for name in sys.argv[3:]:
        write(name, Path(sys.argv[1]) / name, sys.argv[2])
