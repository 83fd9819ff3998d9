# SPDX-License-Identifier: Apache-2.0
"""ci/test --help names every group."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.documents.named_tests import ROOT


def test_help_of_ci_test_names_every_group_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    specification = importlib.util.spec_from_file_location("groups", ROOT / "ci" / "test_groups.py")
    assert specification is not None
    assert specification.loader is not None
    groups = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "groups", groups)  # dataclasses look there
    specification.loader.exec_module(groups)
    said = subprocess.run(
        [ROOT / "ci" / "test", "--help"], capture_output=True, text=True, check=True
    ).stdout

    named = re.findall(r"^  ([a-z_]+)  ", said, re.MULTILINE)
    assert named == list(groups.EVERY)
