# SPDX-License-Identifier: Apache-2.0
"""ci/test --help names every group."""

from __future__ import annotations

import importlib
import re
import subprocess

import pytest

from tests.documents.named_tests import ROOT


def test_help_of_ci_test_names_every_group_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "ci")
    groups = importlib.import_module("test_groups")
    said = subprocess.run(
        [ROOT / "ci" / "test", "--help"], capture_output=True, text=True, check=True
    ).stdout

    named = re.findall(r"^  ([a-z_]+)  ", said, re.MULTILINE)
    assert named == list(groups.EVERY)
