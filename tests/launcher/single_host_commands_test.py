# SPDX-License-Identifier: Apache-2.0
"""Other commands than `train`, which run under the hostname shim."""

from __future__ import annotations

import socket

from jobs import make_trees


def test_another_command_runs_under_the_hostname_shim(folder, run):
    [tree] = make_trees(folder, "")
    script = "import os, socket; print(socket.gethostname(), os.uname().nodename)"

    result = run(tree, "python3", "-c", script)

    assert (result.code, result.out) == (0, "algo-1 algo-1\n")
    assert run(tree, "sh", "-c", "exit 3").code == 3
    assert not tree.succeeded
    assert "no-such-program" in run(tree, "no-such-program").err


def test_the_shim_reads_the_top_level_key_only(folder, run):
    [tree] = make_trees(folder, "")
    config = tree.base / "input/config/resourceconfig.json"
    nested = '{"x": {"current_host": "wrong"}, "l": ["current_host", "no"], "n": 1.5e3, '
    script = "import socket; print(socket.gethostname())"

    answers = []
    for text in (
        nested + '"current_host": "algo-7", "hosts": ["algo-7"]}',
        nested + '"s": "a\\"current_host\\": \\"b"}',
        '{"current_host": 7}',
        '{"current_host": "',
        "",
    ):
        config.write_text(text)
        answers.append(run(tree, "python3", "-c", script).out.strip())

    assert answers == ["algo-7"] + [socket.gethostname()] * 4


def test_the_shim_finds_the_config_of_a_processing_job(folder, run):
    [tree] = make_trees(folder, "")
    (tree.base / "config").mkdir()
    (tree.base / "input/config/resourceconfig.json").rename(
        tree.base / "config/resourceconfig.json"
    )

    assert (
        run(tree, "python3", "-c", "import socket; print(socket.gethostname())").out == "algo-1\n"
    )
