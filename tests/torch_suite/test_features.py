# SPDX-License-Identifier: Apache-2.0
"""Features that PyTorch builds on its collectives give over smddp what they give over gloo."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.mpi.launching import run_mpi

JOB = str(Path(__file__).with_name("features.py"))


def test_all_features_give_what_they_give_over_gloo(tmp_path: Path) -> None:
    found = {}
    for backend in ("gloo", "smddp"):
        outcome = run_mpi(4, JOB, backend, str(tmp_path / backend))
        assert outcome.code == 0, outcome.output
        found[backend] = torch.load(tmp_path / backend)

    assert found["gloo"].keys() == found["smddp"].keys()
    assert len(found["gloo"]) == 15
    for name, expected in found["gloo"].items():
        for ours, theirs in zip(found["smddp"][name], expected, strict=True):
            # Only the order of sums differs.
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=name)
