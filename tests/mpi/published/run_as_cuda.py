# SPDX-License-Identifier: Apache-2.0
"""Runs a script written for CUDA on the CPU: run_as_cuda.py SCRIPT ARGUMENTS...

The script alone sees a CUDA device; moving there moves nowhere. The library and torch see the
machine as it is. Packages that such scripts import come from the folder `shim` beside this file, or
the one that SHIM names. It prints which device the script took and what it moved there by `to`.
"""

import os
import runpy
import sys
from pathlib import Path

import torch
from torch import nn


def only_for(callers, plain, answer):
    """Function that answers modules of these names by ``answer``, all others by ``plain``."""

    def function(*args, **kwargs):
        if sys._getframe(1).f_globals.get("__name__") in callers:
            return answer(*args, **kwargs)
        return plain(*args, **kwargs)

    return function


def on_the_cpu(plain, moved):
    """``to`` and the like, for which ``cuda`` is where everything is. ``moved`` gets the types of
    what was asked to go there."""

    def function(self, *args, **kwargs):
        if any(is_cuda(value) for value in (*args, *kwargs.values())):
            moved.add(type(self).__name__)
        args = tuple("cpu" if is_cuda(value) else value for value in args)
        kwargs = {key: "cpu" if is_cuda(value) else value for key, value in kwargs.items()}
        return plain(self, *args, **kwargs)

    return function


def pin(device):
    print(f"pinned to {device}", flush=True)


def is_cuda(value):
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


def main():
    script = {"__main__"}
    torch.cuda.is_available = only_for(script, torch.cuda.is_available, lambda: True)
    torch.cuda.empty_cache = only_for(script, torch.cuda.empty_cache, lambda: None)
    # The Trainer takes a GPU for granted where it trains with the library.
    trainer = {*script, "transformers.training_args"}
    torch.cuda.set_device = only_for(trainer, torch.cuda.set_device, pin)
    moved = set()
    for kind in (torch.Tensor, nn.Module):
        kind.to = on_the_cpu(kind.to, moved)
        kind.cuda = lambda self, *args, **kwargs: self
    sys.path.insert(0, os.environ.get("SHIM", str(Path(__file__).parent / "shim")))
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("moved:", *sorted(moved), flush=True)


if __name__ == "__main__":
    main()
