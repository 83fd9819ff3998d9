# SPDX-License-Identifier: Apache-2.0
"""The README: it is short, its blocks work one after the other, its figures were measured."""

from __future__ import annotations

import datetime
import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents.named_tests import ROOT
from tests.documents.tutorials import environment

README = (ROOT / "README.md").read_text()


def figures_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("figures", str(ROOT / "ci" / "figures"))
    specification = importlib.util.spec_from_loader("figures", loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)", README))))
def test_what_it_links_to_exists(target: str) -> None:
    assert (ROOT / target).exists()


def test_its_blocks_work_when_pasted_one_after_the_other(tmp_path: Path) -> None:
    """But for those that install and build, which ci/fresh runs."""
    if shutil.which("train", path=environment()["PATH"]) is None:
        pytest.skip("train is not built; ci/build does that")
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 10
    assert losses[-1] < 0.3
    # The job ran the file that was written, by link: an edit counts at the next run.
    assert (tmp_path / "build/job/code").resolve() == tmp_path / "my_code"


def test_figures_that_differ_or_are_old_are_named() -> None:
    script = figures_script()
    day = datetime.date(2026, 1, 1)
    figure = {"row": "a step", "ours": "1 s", "others": "2 s", "command": "ci/bench x"}
    figure |= {"measured": day, "commit": "abc"}
    table = "| | ours | others | measured by |\n| --- | --- | --- | --- |\n"

    assert script.differences([figure], f"{table}| a step | 1 s | 2 s | `ci/bench x` |\n\n") == []
    assert len(script.differences([figure], f"{table}| a step | 9 s | 2 s | `ci/bench x` |\n")) == 2
    assert script.old_ones([figure], day + datetime.timedelta(days=90)) == []
    assert script.old_ones([figure], day + datetime.timedelta(days=91)) == [figure]


def test_its_figures_are_those_that_were_measured() -> None:
    script = figures_script()
    figures = script.tomllib.loads((ROOT / script.FIGURES).read_text())["figure"]
    assert script.differences(figures, README) == []
    for figure in figures:
        name = figure["command"].split()[-1]
        assert (ROOT / "tests/bench/benches" / f"{name}.py").exists(), figure["command"]
