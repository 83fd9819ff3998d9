# SPDX-License-Identifier: Apache-2.0
"""Training loops of Hugging Face on the library: ``SMPTrainer`` and ``adapt_trainer``.

Needs the packages transformers (4.57 or later) and accelerate. Importing it switches off the calls
of the library that Transformers' Trainer makes by itself where a job has ``mp_parameters``: those
are no longer complete there, and these here take their place. Call ``smp.init()`` first.

    trainer     the Trainer's methods that know of ranks, microbatches and parts of the model
    training_arguments, accelerators
                what its arguments and its accelerator say of processes; what is switched off
    trainer_steps, trainer_checkpoints
                one step in microbatches; whole models and checkpoints in parts
"""

from __future__ import annotations

import importlib.util

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError


def _require_packages() -> None:
    """Raises SMPUnsupportedError, naming the package, unless all are installed."""
    for name in ("transformers", "accelerate"):
        if importlib.util.find_spec(name) is None:
            raise SMPUnsupportedError(
                f"smdistributed.modelparallel.torch.huggingface needs the package {name}, which is "
                "not installed: pip install transformers accelerate"
            )


_require_packages()

from smdistributed.modelparallel.torch.huggingface.trainer import SMPTrainer, adapt_trainer  # noqa: E402

__all__ = ["SMPTrainer", "adapt_trainer"]
