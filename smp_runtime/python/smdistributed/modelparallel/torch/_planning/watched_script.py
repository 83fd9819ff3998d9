# SPDX-License-Identifier: Apache-2.0
"""Runs a training script as far as its first step, as one process and without a GPU, and notes the
model that it trains. Nothing is trained, and nothing is written but what the script writes."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdistributed import _runtime
from smdistributed.modelparallel.torch._partition.tracing import Trace, TraceOptions, trace_step
from smdistributed.modelparallel.torch._planning.answer_text import settings_of
from smdistributed.modelparallel.torch._planning.profiles import (
    Profile,
    SplitModules,
    profile_of,
    split_modules,
    state_bytes,
)
from smdistributed.modelparallel.torch._planning.shapes_only import SHAPES_UNKNOWN, ShapesOnly
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.state_mod import holding, state

_LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_OUTPUTS = ("SMP_RECORDS", "SM_HP_MP_PARAMETERS_FILE", "SMP_SELF_CHECK")


class EndOfWatch(BaseException):
    """Ends the script where its first step begins; no ``Exception``, which scripts catch."""


class _TrainsBefore(BaseException):
    pass


@dataclass
class WatchedScript:
    """What a script trains, and under which settings it asks to."""

    profile: Profile
    asked: dict[str, Any]
    """Settings other than the defaults: of the job, and of ``smp.init``."""
    precision: str
    """``fp16`` or ``bf16`` where the settings ask for it, else empty."""


class _Onlooker:
    """See ports.Onlooker."""

    def __init__(self, shapes: ShapesOnly) -> None:
        self._shapes = shapes
        self._split = SplitModules()
        self.asked: dict[str, Any] = {}
        self.profile: Profile | None = None
        self.wrapped = False
        self.trouble = ""

    def settings(self, asked: _runtime.ParallelConfig) -> _runtime.ParallelConfig:
        plain = _runtime.make_parallel_config("", "defaults", "{}", "defaults")
        defaults = settings_of(plain)
        self.asked = {
            name: value for name, value in settings_of(asked).items() if value != defaults[name]
        }
        return plain

    def wraps(self, module: nn.Module) -> None:
        self.wrapped = True
        self._split = split_modules(module)

    def first_step(self, run_step: Callable[[], Any], samples: int) -> NoReturn:
        if state.model is None:
            self.trouble = "it calls its step before smp.DistributedModel wraps a model"
            raise EndOfWatch
        root = state.model.get_module()
        optimizer = state.optimizer.optimizer if state.optimizer is not None else None
        trace = Trace()
        options = TraceOptions(device="cpu", memory_usage=True)
        try:
            with self._shapes.mode, holding(state, is_tracing=True):
                trace = trace_step(root, run_step, options)
        except SHAPES_UNKNOWN as error:
            place = _place_in_script(error)
            self.trouble = (
                f"the shapes of its tensors depend on their values{place}: {_one_line(error)}"
            )
        self.profile = profile_of(root, trace, max(1, samples), optimizer, self._split)
        raise EndOfWatch


def watch_script(
    script: Path, arguments: Sequence[str], folder: Path | None = None
) -> WatchedScript:
    """Blocks until the script, which runs in ``folder``, calls its first step, or ends. The process
    is spent then: ``smp.init`` was called in it.

    Raises SMPUnsupportedError, which names the cause and says what is known all the same, for a
    script that has no step, trains before it, needs a GPU, or whose shapes depend on values; and
    for one that fails.
    """
    shapes = ShapesOnly()
    onlooker = _Onlooker(shapes)
    name = script.name
    own = _quiet_script(script, arguments, folder)
    with _one_process(), own, holding(state, onlooker=onlooker):
        try:
            with shapes.of_parameters(), _refusing_updates():
                runpy.run_path(str(script), run_name="__main__")
        except EndOfWatch:
            pass
        except _TrainsBefore as error:
            raise SMPUnsupportedError(
                f"{name} steps an optimizer before its first function decorated with smp.step"
                f"{_place_in_script(error)}; {_advice_for_steps(onlooker)}"
            ) from None
        except SystemExit as error:
            if error.code not in (None, 0):
                raise SMPUnsupportedError(
                    f"{name} ended with status {error.code} before its first step"
                ) from error
        except Exception as error:
            raise SMPUnsupportedError(_failure(name, error)) from error
    if onlooker.profile is None:
        raise SMPUnsupportedError(_without_step(name, onlooker))
    if onlooker.trouble:
        raise SMPUnsupportedError(f"{name}: {onlooker.trouble}. {_known(onlooker.profile)}")
    precision = next((one for one in ("fp16", "bf16") if onlooker.asked.get(one)), "")
    return WatchedScript(onlooker.profile, onlooker.asked, precision)


# --- Around the script ---


@contextlib.contextmanager
def _one_process() -> Iterator[None]:
    """Variables of a launcher are not this process's; what the library writes is switched off."""
    before = dict(os.environ)
    for variable in list(os.environ):
        if variable.startswith(_LAUNCHERS) or variable in (*_OF_RANKS, *_OF_OUTPUTS):
            del os.environ[variable]
    os.environ |= {"SMP_PROGRESS": "off", "SMP_CPU": "1"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _quiet_script(script: Path, arguments: Sequence[str], folder: Path | None) -> Iterator[None]:
    """As Python starts a script; what it prints is no result."""
    here = Path.cwd()
    os.chdir(folder or here)
    argv, path, bytecode = sys.argv, list(sys.path), sys.dont_write_bytecode
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    sys.dont_write_bytecode = True
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:], sys.dont_write_bytecode = argv, path, bytecode
        os.chdir(here)


@contextlib.contextmanager
def _refusing_updates() -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise _TrainsBefore

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


# --- Words ---

_OURS = (str(Path(__file__).parents[3]), str(Path(nn.__file__).parents[1]))


def _place_in_script(error: BaseException) -> str:
    """`` at FILE:LINE``, of the last line that is neither ours, torch's nor Python's."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        plain = not frame.filename.startswith((*_OURS, "<", sys.prefix, sys.base_prefix))
        if plain and "site-packages" not in frame.filename:
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _failure(name: str, error: Exception) -> str:
    text, place = _one_line(error), _place_in_script(error)
    missing_gpu = isinstance(error, ImportError) and "flash" in text
    if missing_gpu or any(word in text for word in ("CUDA", "cuda", "GPU", "NVIDIA")):
        return (
            f"{name} needs a GPU before its first step{place}: {text}. Do it only where "
            "torch.cuda.is_available(), or run --suggest on a machine with a GPU"
        )
    return f"{name} failed before its first step{place}: {text}"


def _advice_for_steps(onlooker: _Onlooker) -> str:
    if onlooker.wrapped:
        return "put training into that function, or skip what comes before it"
    return "a model is planned for once smp.DistributedModel wraps it and smp.step runs it"


def _without_step(name: str, onlooker: _Onlooker) -> str:
    if onlooker.trouble:
        return f"{name}: {onlooker.trouble}"
    what = "" if onlooker.wrapped else ", nor wrapped a model with smp.DistributedModel"
    return (
        f"{name} ended and has called no function decorated with smp.step{what}. Arguments may "
        "have told it not to train; one step is enough"
    )


def _known(profile: Profile) -> str:
    elements, size = state_bytes(profile)
    return (
        f"What can be said all the same: the model has {elements:,} parameters, and one copy of "
        f"its training state takes {size / 2**30:.2f} GiB, without activations"
    )
