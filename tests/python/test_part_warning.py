# SPDX-License-Identifier: Apache-2.0
"""A warning of a module's own state dict, and copies of a module that has one."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from smdistributed.modelparallel.torch._checks.part_warning import PartWarning
from torch import nn


def test_it_is_said_once_and_only_while_the_values_are_a_part(
    capfd: pytest.CaptureFixture[str],
) -> None:
    module, part = nn.Linear(2, 2), [""]
    warning = PartWarning(module, lambda: part[0])
    module.state_dict()
    part[0] = "pipeline parallelism"
    with warning.unheard():
        module.state_dict()
    assert "only this rank's part" not in capfd.readouterr().err

    module.state_dict()
    module.state_dict()

    assert capfd.readouterr().err.count("only this rank's part of the values, with pipeline") == 1


def test_copies_warn_of_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    PartWarning(module, lambda: "pipeline parallelism")

    assert copy.deepcopy(module).state_dict().keys() == {"weight", "bias"}
    torch.save(module, tmp_path / "module.pt")
    # An interpreter without this library.
    script = f"""
import sys
sys.modules["smdistributed"] = None
import torch
print(sorted(torch.load({str(tmp_path / "module.pt")!r}, weights_only=False).state_dict()))
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                            check=True, timeout=120)  # fmt: skip

    assert loaded.stdout == "['bias', 'weight']\n"
    assert "only this rank's part" not in capfd.readouterr().err + loaded.stderr
