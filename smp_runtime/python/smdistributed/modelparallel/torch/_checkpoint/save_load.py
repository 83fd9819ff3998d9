# SPDX-License-Identifier: Apache-2.0
"""Files of one object per rank: ``smp.save`` and ``smp.load``. For folders with a job's state, as
``smp.save_checkpoint`` writes them, see ``checkpoints``."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object, write_object
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.state_mod import state


def save(
    obj: Any,
    f: str,
    partial: bool = True,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    v3: bool = False,
    *,
    pickel_module: Any = None,
) -> None:
    """Writes ``obj`` with ``torch.save``, whole and durable or not at all.

    The file is ``f`` with ``partial=False``; else ``f_<mp_rank>``, with tensor parallelism
    ``f_<pp_rank>_<tp_rank>``, and with ``v3`` always ``f_<pp_rank>_<tp_rank>_<rdp_rank>``. No
    communication: ranks that would write the same file must not call it at the same time.

    Args:
        obj: anything that ``torch.save`` takes.
        f: the name of the file, without the suffix.
        partial: whether the name gets the rank's suffix.
        pickle_module, pickle_protocol: as ``torch.save``'s.
        v3: use the suffix of three numbers.
        pickel_module: ``pickle_module`` as the published documentation spells it.

    Raises:
        SMPCheckpointError: the file cannot be written, or ``obj`` cannot be pickled.

    >>> import tempfile
    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     smp.save({"epoch": 3}, folder + "/state.pt")
    ...     os.listdir(folder), smp.load(folder + "/state.pt")
    (['state.pt_0'], {'epoch': 3})
    >>> smp.shutdown()
    """
    path = Path(_path("smp.save", f) + (_suffix(v3) if partial else ""))
    write_object(
        path, obj, pickle_module=pickel_module or pickle_module, pickle_protocol=pickle_protocol
    )


def load(
    f: str,
    map_location: Any = None,
    pickle_module: Any = pickle,
    partial: bool = True,
    back_compat: bool = False,
    *,
    weights_only: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what ``save`` wrote for this rank, under any of its names. No communication.

    Args:
        f: the name as given to ``save``.
        map_location, pickle_module: as ``torch.load``'s; more of its arguments by name.
        partial: whether the name has a suffix.
        back_compat: the one-part name of versions before 1.10.
        weights_only: False reads objects of any class, as plain pickle does: **code that the file
            holds is run**. True takes tensors, plain Python objects and a few classes: see
            :ref:`what-a-file-may-hold`. By default False only with one's own ``pickle_module``.

    Raises:
        SMPCheckpointError: no such file, with those that are there; or one that cannot be read, or
            holds objects that ``weights_only`` excludes.
    """
    path = _path("smp.load", f)
    candidates = [path + suffix for suffix in _suffixes(back_compat)] if partial else [path]
    found = next((name for name in candidates if os.path.isfile(name)), None)
    if found is None:
        raise SMPCheckpointError(_missing(path, candidates))
    if weights_only is None:
        weights_only = pickle_module is pickle
    if not weights_only:
        pickle_load_args["pickle_module"] = pickle_module
    return read_object(
        found, weights_only=weights_only, map_location=map_location, **pickle_load_args
    )


def _path(what: str, f: Any) -> str:
    state.require_initialized(what)
    if not isinstance(f, (str, os.PathLike)):
        raise SMPCheckpointError(f"{what} got {type(f).__name__}; expected a file name")
    return os.fspath(f)


def _suffix(v3: bool) -> str:
    if v3:
        return f"_{ranks.pp_rank()}_{ranks.tp_rank()}_{ranks.rdp_rank()}"
    if ranks.tp_size() > 1:
        return f"_{ranks.pp_rank()}_{ranks.tp_rank()}"
    return f"_{ranks.mp_rank()}"


def _suffixes(back_compat: bool) -> list[str]:
    one = f"_{ranks.mp_rank()}"
    if back_compat:
        return [one]
    two = f"_{ranks.pp_rank()}_{ranks.tp_rank()}"
    return [_suffix(v3=True), two, one]


def _missing(path: str, candidates: list[str]) -> str:
    folder, stem = os.path.split(path)
    try:
        names = sorted(
            n for n in os.listdir(folder or ".") if n == stem or n.startswith(stem + "_")
        )
    except OSError as error:
        return f"smp.load cannot read {path}: {error.strerror or error}"
    wanted = " or ".join(os.path.basename(name) for name in candidates)
    if not names:
        return f"smp.load finds no {wanted} in {folder or '.'}, nor any other file of that name"
    numbers = [_numbers(name[len(stem) :]) for name in names]
    kinds = {
        0: "whole files, of partial=False",
        1: "<mp_rank>",
        2: "<pp_rank>_<tp_rank>",
        3: "<pp_rank>_<tp_rank>_<rdp_rank>",
    }
    written = " and ".join(
        kinds[n] for n in sorted({len(parts) for parts in numbers}) if n in kinds
    )
    here = ", ".join(
        f"{axis}_rank {rank} of {size}"
        for axis, rank, size in (
            ("pp", ranks.pp_rank(), ranks.pp_size()),
            ("tp", ranks.tp_rank(), ranks.tp_size()),
            ("rdp", ranks.rdp_rank(), ranks.rdp_size()),
        )
    )
    return (
        f"smp.load finds no {wanted} in {folder or '.'}; this rank is {here}. There are "
        f"{', '.join(names[:8])}{' and more' if len(names) > 8 else ''}: {written}. They belong to "
        "a job with other degrees, or were saved with another value of partial"
    )


def _numbers(suffix: str) -> list[int]:
    parts = suffix.split("_")[1:]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []
