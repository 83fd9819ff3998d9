# SPDX-License-Identifier: Apache-2.0
"""Failure texts of `train` on one host, for jobs that failed or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Result, make_trees


def first_lines(result: Result) -> list[str]:
    return result.tree.failure.splitlines()


def test_a_traceback_leads_the_failure_text(folder, run):
    [tree] = make_trees(folder, "def f():\n    raise ValueError('boom')\nf()\n")

    result = run(tree)

    assert result.code == 1
    assert not tree.succeeded
    lines = first_lines(result)
    assert lines[:3] == ["ExecuteUserScriptError:", "ExitCode 1", 'ErrorMessage "ValueError: boom']
    assert "in f" in tree.failure[:1024]
    assert 'Command "' in tree.failure[:1024]
    assert "Traceback (most recent call last):" in tree.failure
    assert "Reporting training FAILURE" in result.err
    assert "Encountered exit_code 1" in result.err


@pytest.mark.parametrize(
    ("script", "code", "line"),
    [
        ("import sys; sys.exit(7)", 7, "ExitCode 7"),
        ("import os; os.kill(os.getpid(), 9)", 137, "ExitCode -9"),
        ("import os; os.abort()", 134, "ExitCode -6"),
    ],
)
def test_the_scripts_own_end_is_in_the_failure_text(folder, run, script, code, line):
    [tree] = make_trees(folder, script)

    assert run(tree).code == 1
    assert line in tree.failure
    (tree.base / "output" / "failure").unlink()
    assert run(tree, SM_LAUNCH_EXIT="propagate").code == code


def test_a_kill_is_called_out_of_memory_only_with_reason(folder, run):
    [tree] = make_trees(folder, "import os; os.kill(os.getpid(), 9)")

    run(tree)

    # Nothing ran out of memory here; where the kernel's counter cannot be read, it may have.
    counters = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    if any(Path(path).exists() for path in counters):
        assert "OutOfMemory" not in tree.failure
    assert "SIGKILL (signal 9)" in tree.failure


def test_the_users_own_failure_text_is_kept(folder, run):
    [tree] = make_trees(
        folder, "import os; open(os.environ['SM_OUTPUT_DIR'] + '/failure', 'w').write('mine'); 1/0"
    )

    assert run(tree).code == 1
    assert tree.failure == "mine"


def test_secrets_are_masked_everywhere(folder, run):
    [tree] = make_trees(
        folder, "raise SystemExit(3)", hyperparameter=["api_key=hunter2x", "epochs=3"]
    )

    result = run(tree)

    assert "hunter2x" not in result.err + result.out + tree.failure
    assert "--api_key ****** --epochs 3" in tree.failure


def test_a_failing_installation_says_why(folder, run):
    [tree] = make_trees(folder, "print('never')", files={"requirements.txt": "./no-such-folder\n"})

    result = run(tree, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")

    assert result.code == 1
    assert first_lines(result)[0] == "InstallRequirementsError:"
    assert "no-such-folder" in tree.failure[:1024]
    assert "pip install -r requirements.txt" in tree.failure
    assert "never" not in result.out
    assert "Installing dependencies from requirements.txt" in result.err


def test_a_missing_config_names_the_file(folder, run):
    [tree] = make_trees(folder, "")
    (tree.base / "input/config/resourceconfig.json").unlink()

    assert run(tree).code == 1
    assert "resourceconfig.json" in tree.failure


def test_broken_json_names_file_line_and_column(folder, run):
    [tree] = make_trees(folder, "")
    (tree.base / "input/config/hyperparameters.json").write_text('{\n  "a": "1",\n  "b" "2"\n}\n')

    result = run(tree)

    assert result.code == 1
    assert "hyperparameters.json" in tree.failure
    assert "line 3" in tree.failure
    assert "column" in tree.failure
    assert not tree.succeeded


def test_a_missing_program_is_refused_before_anything_starts(folder, run):
    [tree] = make_trees(folder, "")
    (tree.base / "code" / "train.py").unlink()

    assert run(tree).code == 1
    assert "train.py" in tree.failure
