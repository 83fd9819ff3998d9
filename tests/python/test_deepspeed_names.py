# SPDX-License-Identifier: Apache-2.0
"""Names of DeepSpeed, for who asks for them; each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import smdistributed
from deepspeed.runtime.zero import stage3
stage3.assert_ints_same_as_other_ranks([1])
stage3.assert_ints_same_as_other_ranks = lambda x: None
import importlib.util, importlib.metadata
print(importlib.util.find_spec("deepspeed.ops"), stage3.__name__)
try:
    importlib.metadata.version("deepspeed")
except importlib.metadata.PackageNotFoundError:
    print("not installed")
"""


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "SMP_DEEPSPEED_COMPAT"}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("value", ["1", "on"])
def test_published_patch_works_where_it_is_asked_for(value: str) -> None:
    done = run(SCRIPT, SMP_DEEPSPEED_COMPAT=value)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None deepspeed.runtime.zero.stage3", "not installed"
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_nothing_is_offered_unasked(value: str) -> None:
    done = run("import smdistributed\nimport deepspeed", SMP_DEEPSPEED_COMPAT=value)

    assert "ModuleNotFoundError: No module named 'deepspeed'" in done.stderr


def test_another_value_is_refused() -> None:
    done = run("import smdistributed", SMP_DEEPSPEED_COMPAT="ture")

    assert 'SMPConfigError: variable SMP_DEEPSPEED_COMPAT is "ture"; expected 1, on' in done.stderr


def test_the_real_package_goes_first(tmp_path: Path) -> None:
    (tmp_path / "deepspeed.py").write_text("real = True\n")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"

    done = run(
        "import smdistributed, deepspeed\nassert deepspeed.real",
        SMP_DEEPSPEED_COMPAT="1",
        PYTHONPATH=path,
    )

    assert done.returncode == 0, done.stderr
