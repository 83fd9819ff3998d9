# SPDX-License-Identifier: Apache-2.0
"""The arguments and the plot of `python -m smdistributed.dataparallel.bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
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
        ("--backends smddp,foo", "--backends: there is no 'foo' here; there are: smddp, gloo"),
        ("--backends nccl", "no 'nccl' here (it needs a GPU for each rank of the host)"),
        ("--device cuda --backends smddp", "--device cuda: smddp takes tensors of cpu only here"),
        ("--device tpu", "invalid choice: 'tpu'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_job_is_joined(
    words: str,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SystemExit):
        bench.main(words.split())

    assert complaint in capsys.readouterr().err


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed

    with pytest.raises(SystemExit, match=r"--plot needs matplotlib.*pip install matplotlib"):
        bench.main(["all_reduce", "--plot", str(tmp_path / "plot.png")])


Have = Callable[[int], None]


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> Have:
    """have(2): a host with two GPUs, and a torch with all backends, started by mpirun."""

    def gpus(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    for name in ("gloo", "nccl", "mpi", "ucc"):
        monkeypatch.setattr(dist, f"is_{name}_available", lambda: True)
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return gpus


@pytest.mark.parametrize(
    ("words", "backends"),
    [
        ("", ["smddp", "gloo", "mpi", "ucc"]),
        ("--device cuda", ["smddp", "gloo", "nccl", "ucc"]),
        ("--backends gloo", ["gloo"]),
    ],
)
def test_all_backends_that_take_the_device_are_measured_unless_some_are_named(
    words: str, backends: list[str], have: Have
) -> None:
    have(1)

    assert bench._arguments(words.split()).backends == backends


def test_a_backend_that_could_not_start_is_left_out(
    have: Have, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # NCCL refuses two ranks on a GPU
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)  # MPI would see one rank

    assert list(bench.backends_here()) == ["smddp", "gloo", "ucc"]


@pytest.mark.parametrize(
    ("words", "device"),
    [("", "cpu"), ("--backends smddp,nccl", "cuda"), ("--device cuda", "cuda")],
)
def test_tensors_are_where_the_backends_take_them(words: str, device: str, have: Have) -> None:
    have(1)

    assert bench._arguments(words.split()).device == device


def test_nccl_is_not_measured_on_tensors_of_the_cpu(
    capsys: pytest.CaptureFixture[str], have: Have
) -> None:
    have(1)

    with pytest.raises(SystemExit):
        bench.main(["--backends", "smddp,nccl", "--device", "cpu"])

    assert "--device cpu: nccl takes tensors of cuda only here" in capsys.readouterr().err


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib here (docker/locks/dev.lock)")
    rows = [bench.Row(2**power, {"smddp": 1e-6 * power, "gloo": 3e-6 * power}) for power in (3, 9)]

    bench.plot(rows, "all_reduce", 4, str(tmp_path / "plot.png"))

    assert (tmp_path / "plot.png").read_bytes().startswith(PNG)
