# SPDX-License-Identifier: Apache-2.0
"""Commands that ci/fresh reads in the README, and its complaints."""

from __future__ import annotations

import importlib
import subprocess
from types import ModuleType

import pytest
import tomllib

from tests.documents.named_tests import ROOT

README = """\
# A title

    ci/one --option   # says what it does
    ls

```sh
cat >file <<'END'
    indented  # as it is
END
```

Text with `ci/two` in it.

    docker/three --long \\
      '{"a": 1}' --program x.py
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "ci")
    return importlib.import_module("fresh_commands")


def test_commands_and_blocks_are_found_in_their_order(fresh: ModuleType) -> None:
    assert list(fresh.commands_of(README).items()) == [
        ("one", "ci/one --option"),
        ("block-1", "cat >file <<'END'\n    indented  # as it is\nEND\n"),
        ("three", "docker/three --long \\\n      '{\"a\": 1}' --program x.py"),
    ]


def test_the_readme_has_what_has_a_limit(fresh: ModuleType) -> None:
    names = list(fresh.commands_of((ROOT / "README.md").read_text()))
    limits = tomllib.loads((ROOT / "ci" / "budgets.toml").read_text())["fresh"]

    assert names == ["quickstart", "test", "block-1", "block-2", "image", "cluster"]
    assert set(limits) - {"silence"} <= set(names)


def test_scripts_that_train_may_be_silent(fresh: ModuleType) -> None:
    commands = fresh.commands_of((ROOT / "README.md").read_text())

    assert [name for name in commands if fresh.trains(commands[name])] == ["block-2", "cluster"]


def test_each_command_is_one_for_bash(fresh: ModuleType) -> None:
    for command in fresh.commands_of((ROOT / "README.md").read_text()).values():
        subprocess.run(["bash", "-n", "-c", command], check=True)


def test_what_went_wrong_is_said_beside_the_numbers(fresh: ModuleType) -> None:
    result = fresh.Result("user", "test", 0, 100.0, 12.0)

    assert result.complaints(None, None) == []
    assert result.complaints(100, 12) == []
    assert result.complaints(99, 9) == ["over its limit", "silent for more than 9 s"]
    assert result.row(99, 9).endswith("over its limit, silent for more than 9 s")
    assert result.row(200, 20).endswith("good")
    assert fresh.Result("root", "test", 2, 1.0, 1.0).complaints(9, 9) == ["exit code 2"]
