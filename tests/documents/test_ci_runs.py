# SPDX-License-Identifier: Apache-2.0
"""ci/test shows while it runs what is installed, and times beside their budgets."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import tomllib

from tests.documents.named_tests import ROOT


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "ci")
    module = importlib.import_module("test_run")
    monkeypatch.setattr(module, "LOGS", tmp_path)
    return module


def test_what_is_installed_is_said_to_the_user_too(
    runs: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    group = runs.Group("setup")

    code, result = group.announced("sh", "-c", "echo a result; echo installing one >&2; exit 3")

    assert (code, result) == (3, "a result\n")
    assert capfd.readouterr().err == "installing one\n"
    assert group.log.read_text().endswith("\ninstalling one\n")


def test_a_time_over_its_budget_is_named(runs: ModuleType) -> None:
    assert runs.beside(719.6, 720) == "720 s of 720 s"
    assert runs.beside(721, 720) == "721 s of 720 s, over its budget"
    assert runs.beside(5, None) == "5 s"


def test_groups_run_beside_others_only_where_there_are_some(
    runs: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = importlib.import_module("test_groups")
    budgets = dict.fromkeys((*groups.EVERY,), 60)

    def told(group: object) -> object:
        group.run("true")  # type: ignore[attr-defined]
        return runs.Count(passed=1)

    def commands(*names: str) -> list[str]:
        assert groups.run_all(dict.fromkeys(names, told), budgets).passed == len(names)
        return [runs.Group(name).log.read_text().strip() for name in names]

    lowest = "$ nice -n 19 true"
    assert commands("lint", "thorough", "asan", "documents") == ["$ true", "$ true", lowest, lowest]
    assert commands("asan", "tsan") == ["$ true", "$ true"]
    assert "asan         1 passed, 0 failed" in capfd.readouterr().out


def test_every_group_and_both_commands_have_a_budget(runs: ModuleType) -> None:
    assert runs is sys.modules["test_run"]
    groups = importlib.import_module("test_groups")
    budgets = tomllib.loads((ROOT / "ci" / "budgets.toml").read_text())

    assert set(budgets["seconds"]) == set(groups.PREPARE | groups.EVERY)
    assert set(budgets["whole"]) == {"ci/test", "ci/test --all"}
