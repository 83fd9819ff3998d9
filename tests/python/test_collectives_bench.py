# SPDX-License-Identifier: Apache-2.0
"""The arguments and the plot of `python -m smdistributed.dataparallel.bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from smdistributed.dataparallel import bench

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--begin 8Q", "'8Q' is no size"),
        ("--begin 2M --end 1M", "--begin 2097152 is over --end 1048576"),
        ("--factor 1", "--factor must be 2 or more"),
        ("--plot /nowhere/x.png", "--plot /nowhere/x.png: there is no such folder"),
        ("gossip", "invalid choice: 'gossip'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_job_is_joined(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench.main(words.split())

    assert complaint in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed

    with pytest.raises(SystemExit, match=r"--plot needs matplotlib.*pip install matplotlib"):
        bench.main(["all_reduce", "--plot", str(tmp_path / "plot.png")])


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib here: pip install matplotlib")
    rows = [bench.Row(2**power, {"smddp": 1e-6 * power, "gloo": 3e-6 * power}) for power in (3, 9)]

    bench.plot(rows, "all_reduce", 4, str(tmp_path / "plot.png"))

    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)
