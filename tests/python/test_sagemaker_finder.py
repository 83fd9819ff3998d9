# SPDX-License-Identifier: Apache-2.0
"""``import torch.sagemaker`` finds ours, unless torch has one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import _smp_torch_sagemaker
import pytest
import torch

HERE = str(Path(_smp_torch_sagemaker.__file__).parent)
BY_PTH = f"import site; site.addsitedir({HERE!r}); "


def python(code: str) -> str:
    """Output of a new interpreter that nothing was imported into."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_site_packages_folder_makes_the_name_importable() -> None:
    code = (
        "import sys; assert 'torch' not in sys.modules and 'smdistributed' not in sys.modules; "
        "import torch.sagemaker as tsm, smdistributed.sagemaker as ours; "
        "from torch.sagemaker.state_handler import state; "
        "import torch.sagemaker.logger as logger, smdistributed.sagemaker.logger as own; "
        "assert tsm is ours and state is ours.state and logger is own; "
        "assert tsm.__spec__.name == 'smdistributed.sagemaker'; "
        "print(tsm.__version__)"
    )

    assert python(BY_PTH + code) == "2.8.0+open.1\n"


def test_importing_our_package_makes_it_so_without_a_site_packages_folder() -> None:
    assert python("import smdistributed.sagemaker, torch.sagemaker; print('there')") == "there\n"


def test_what_is_not_there_is_a_missing_module_of_torch() -> None:
    code = (
        "try:\n"
        "    import torch.sagemaker.rotary\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)"
    )

    told = python("import smdistributed.sagemaker\n" + code)

    assert told == "No module named 'torch.sagemaker.rotary'\n"


def test_the_genuine_library_is_never_in_our_shadow(tmp_path: Path) -> None:
    package = tmp_path / "sagemaker"
    package.mkdir()
    (package / "__init__.py").write_text("name = 'genuine'\n")
    (package / "logger.py").write_text("name = 'of it, too'\n")
    code = (
        f"import torch; torch.__path__.append({str(tmp_path)!r}); "
        "import torch.sagemaker, torch.sagemaker.logger; "
        "print(torch.sagemaker.name, torch.sagemaker.logger.name)"
    )

    told = python(BY_PTH + code)

    assert told.startswith("genuine of it, too\n")
    assert told.count("that one is imported, and not ours") == 1


def test_other_imports_are_left_alone() -> None:
    finder = _smp_torch_sagemaker.Finder()

    assert finder.find_spec("torch", None) is None
    assert finder.find_spec("torch.sagemaker_tools", torch.__path__) is None


@pytest.mark.parametrize("times", [1, 2])
def test_the_finder_is_installed_once(times: int) -> None:
    for _ in range(times):
        _smp_torch_sagemaker.install()

    names = [type(one).__module__ for one in sys.meta_path]
    assert names.count("_smp_torch_sagemaker") == 1
