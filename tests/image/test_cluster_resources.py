# SPDX-License-Identifier: Apache-2.0
"""Resources that docker/cluster gives each container; needs no engine."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.image.engine import ROOT


def load() -> ModuleType:
    path = ROOT / "docker/cluster.d/resources.py"
    specification = importlib.util.spec_from_file_location("cluster_resources", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


resources = load()
GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "wanted"), [("10", 10), ("10s", 10), ("1.5m", 90), ("250ms", 0.25), ("2h", 7200)]
)
def test_durations(text: str, wanted: float) -> None:
    assert resources.seconds(text) == pytest.approx(wanted)


@pytest.mark.parametrize("text", ["", "s", "10 s", "-1s", "ten", "1d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration"):
        resources.seconds(text)


def test_hosts_share_half_the_memory_and_get_a_gibibyte_at_least() -> None:
    assert resources.shared_memory(64 * GIB, 2) == 16 * GIB
    assert resources.shared_memory(2 * GIB, 4) == GIB


@pytest.mark.parametrize(
    ("gpus", "hosts", "wanted"),
    [
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, 2, [[0], [1]]),
        (1, 2, [[0], [0]]),
        (2, 1, [[0, 1]]),
    ],
)
def test_gpus_are_divided_or_shared(gpus: int, hosts: int, wanted: list[list[int]]) -> None:
    assert resources.split_gpus(gpus, hosts) == wanted


def test_what_docker_is_told_of_gpus() -> None:
    assert resources.gpu_requests("auto", 4, 2) == ['"device=0,1"', '"device=2,3"']
    assert resources.gpu_requests("auto", 0, 2) == [None, None]
    assert resources.gpu_requests("none", 4, 2) == [None, None]
    assert resources.gpu_requests("all", 0, 2) == ["all", "all"]


def test_gpus_count_only_where_the_hook_of_containers_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lister = tmp_path / "nvidia-smi"
    lister.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: 1)'; echo 'GPU 1: A (UUID: 2)'\n")
    lister.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    without_hook = resources.machine_gpus()
    (tmp_path / "nvidia-ctk").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-ctk").chmod(0o755)

    assert (without_hook, resources.machine_gpus()) == (0, 2)
