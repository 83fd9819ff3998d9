# SPDX-License-Identifier: Apache-2.0
"""Jobs of published scripts of SMP v2: small models and data, numbers that they log."""

from __future__ import annotations

import gzip
import json
import pydoc_data.topics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.free_port import free_port
from tests.mpi.launching import run_mpi

PUBLISHED = Path(__file__).parent / "published"
COPIES = PUBLISHED / "smp_v2"
RUNNER, LOADER = PUBLISHED / "run_smp_v2.py", PUBLISHED / "load_whole.py"
LENGTH, VOCABULARY, BATCH = 32, 128, 2
STEPS, EACH = 4, 2  # checkpoints and validation after each second step
#: What the warm interpreter of these jobs has imported; all of it is the scripts' own choice.
IMPORTS = ("accelerate", *(f"transformers.models.{one}.modeling_{one}" for one in
           ("llama", "mistral", "mixtral", "gpt2", "gpt_neox")))  # fmt: skip
SIZES = {
    "train_batch_size": BATCH, "val_batch_size": BATCH, "max_context_width": LENGTH,
    "vocab_size": VOCABULARY, "hidden_width": 32, "num_layers": 2, "num_heads": 4,
    "num_key_value_heads": 2, "llama_intermediate_size": 64,
}  # fmt: skip
TRAINING = {
    "max_steps": STEPS, "validation_freq": EACH, "validation_batches": 1, "num_kept_checkpoints": 2,
    "lr": 0.01, "lr_decay_iters": 8, "warmup": 0.25, "grad_clip": 0.5, "save_final_model": 1,
    "log_reduced_training_loss": 1, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
    "distributed_backend": "nccl",
}  # fmt: skip
#: Arguments of scripts with a mixture of experts.
EXPERTS = {"intermediate_size": 64, "num_local_experts": 4}
OF_MODEL: dict[str, dict[str, Any]] = {
    "llama_v3": {
        "rope_scaling_type": "llama3", "rope_scaling_factor": 2.0,
        "rope_scaling_original_max_position_embeddings": 16,
    },
    "mistral": {"sliding_window": 16},
    "gpt_neox": {"patch_neox_rope": 0},
}  # fmt: skip


@dataclass
class Numbers:
    """Numbers of a job: by step its loss, learning rate and norm; losses of validation; the folder
    of the whole model."""

    steps: list[list[float]]
    validation: list[list[float]]
    model: Path

    def after(self, step: int) -> tuple[list[list[float]], list[list[float]]]:
        """Those of later steps."""
        return [one for one in self.steps if one[0] >= step], [
            one for one in self.validation if one[0] >= step
        ]

    def values(self) -> dict[str, torch.Tensor]:
        return torch.load(self.model / "pytorch_model.bin", weights_only=True)


@dataclass(frozen=True)
class Script:
    """A published script and the interpreter that runs it."""

    folder: str
    python: str

    @property
    def path(self) -> Path:
        name = "train.py" if self.folder == "examples" else "train_external.py"
        return COPIES / self.folder / name

    def run(
        self, ranks: int, out: Path, settings: dict[str, Any], plain: Path | bool = False,
        **arguments: Any,
    ) -> Numbers:  # fmt: skip
        """Numbers of a job, which has to end well. ``plain`` is where its torch.sagemaker is
        nothing but PyTorch; a file of values with which its model begins."""
        out.mkdir(parents=True, exist_ok=True)
        numbers, model = out / "numbers.json", out / "model"
        words = [f"--{name}={value}" for name, value in {**arguments, "model_dir": model}.items()]
        outcome = run_mpi(
            ranks,
            str(RUNNER),
            str(numbers),
            str(self.path),
            *words,
            python=self.python,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=free_port(),
            SMP_CPU="1",
            SM_HP_MP_PARAMETERS=json.dumps(settings),
            **({"PLAIN_TORCH": "1"} if plain else {}),
            **({"INITIAL_VALUES": str(plain)} if isinstance(plain, Path) else {}),
        )
        assert outcome.code == 0, outcome.output[-6000:]
        return Numbers(**json.loads(numbers.read_text()), model=model)

    def loaded(self, model: Path, data: Path, ranks: int, bf16: int) -> dict[str, Any]:
        """What ``from_pretrained`` says of a whole model, and its loss of validation."""
        told = model.parent / "loaded.json"
        outcome = run_mpi(
            1, str(LOADER), str(model), str(data / "test"), str(ranks), str(BATCH), str(bf16),
            str(told), python=self.python,
        )  # fmt: skip
        assert outcome.code == 0, outcome.output[-6000:]
        found: dict[str, Any] = json.loads(told.read_text())
        return found


def write_data(folder: Path, ranks: int, copies: int = 1) -> Path:
    """Text of Python on its language, as the scripts read it: a token a character, each sequence
    ``copies`` times, so that as many ranks get it.

    Validation has one batch: a job that resumes begins with the next one where it had one more.
    """
    text = "\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore")
    batches = {"train": STEPS + 1, "test": 1}
    for at, (name, number) in enumerate(batches.items()):
        count = number * BATCH * ranks // copies
        (folder / name).mkdir(parents=True)
        with gzip.open(folder / name / "part.json.gz", "wt") as file:
            for row in range(count):
                begin = (at * 1000 + row) * LENGTH
                tokens = {"input_ids": list(text[begin : begin + LENGTH]),
                          "attention_mask": [1] * LENGTH}  # fmt: skip
                file.write((json.dumps(tokens) + "\n") * copies)
    return folder


def paths(data: Path) -> dict[str, Path]:
    return {"training_dir": data / "train", "test_dir": data / "test"}
