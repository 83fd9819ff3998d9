# SPDX-License-Identifier: Apache-2.0
"""A look at what the compiled part of the package was built for, before anything of it is loaded:
the loader's own words name symbols and not what to do."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from pathlib import Path

from smdistributed._built_for import CUDA, GLIBC, LIBRARY, PYTHON, TORCH

_PACKAGE = Path(__file__).parent


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.15.0+cu132")
    (2, 15)
    """
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def torch_versions(text: str) -> tuple[str, str]:
    """The version and the CUDA release, "" for none, that torch/version.py of a wheel names.

    >>> torch_versions("__version__ = '2.15.0+cu132'\\ncuda: Optional[str] = '13.2'\\n")
    ('2.15.0+cu132', '13.2')
    >>> torch_versions("__version__ = '2.15.0+cpu'\\ncuda: Optional[str] = None\\n")
    ('2.15.0+cpu', '')
    """
    version = re.search(r"^__version__ = '(.*)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b.*= '(.*)'", text, re.MULTILINE)
    return version[1] if version else "", cuda[1] if cuda else ""


def misfit(torch: str, cuda: str) -> str | None:
    """Says what is wrong with a PyTorch, and the remedy; None where it fits.

    >>> misfit(f"{TORCH}.9", CUDA) is None
    True
    """
    wanted = f"PyTorch {TORCH}" + (f" with CUDA {CUDA}" if CUDA else "")
    if not torch:
        return f"it needs {wanted}, and there is no torch: pip install 'torch=={TORCH}.*'"
    minor = ".".join(map(str, _numbers(torch)))
    release = cuda.partition(".")[0]
    if minor != TORCH:
        mend = f"install its wheel for torch {minor}, or pip install 'torch=={TORCH}.*'"
    elif CUDA and release != CUDA:
        mend = (
            f"install its wheel for torch {minor} that ends in '.cpu', or a torch with CUDA {CUDA}"
        )
    else:
        return None
    found = f"torch {torch}" + (f", with CUDA {cuda}" if cuda else ", without CUDA")
    return f"it was built for {wanted}, and this is {found}: {mend}"


def _installed_torch() -> tuple[str, str]:
    """Without importing it, which takes a second."""
    module = sys.modules.get("torch")
    found = module.__spec__ if module else importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return "", ""
    return torch_versions(Path(found.origin).with_name("version.py").read_text())


def _reason() -> str | None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python != PYTHON:
        return f"it was built for Python {PYTHON}, and this is {python}: install the wheel for that"
    libc = os.confstr("CS_GNU_LIBC_VERSION") or "another C library"
    if not libc.startswith("glibc") or _numbers(libc) < _numbers(GLIBC):
        return f"it needs glibc {GLIBC} or newer, and this is {libc}: use a newer base image"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for file in (f"_runtime{suffix}", f"_smddp{suffix}", LIBRARY):
        if not (_PACKAGE / file).exists():
            return f"its file {_PACKAGE / file} is missing: install it anew, pip --force-reinstall"
    return misfit(*_installed_torch())


def check() -> None:
    """Raises ImportError with one sentence where the package cannot work."""
    if reason := _reason():
        raise ImportError(f"open-smp-train cannot be used here: {reason}")
