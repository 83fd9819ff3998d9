# SPDX-License-Identifier: Apache-2.0
"""`train` on one host, with real scripts, a real mpirun and real signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import LIMIT, Result, job_environment, make_trees, train_binary

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")

WAIT_FOR_STOP = """
    import os, signal, sys
    def stop(number, frame):
        print("stopped", os.environ.get("OMPI_COMM_WORLD_RANK", "-"), flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    print("up", flush=True)
    while True:
        signal.pause()
"""


def first_lines(result: Result) -> list[str]:
    return result.tree.failure.splitlines()


# --- one process ---------------------------------------------------------------------------------


def test_success_streams_both_outputs_and_marks_the_tree(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, sys
        print("  out é", sys.argv[1:], os.getcwd())
        print("err", file=sys.stderr)
        """,
        hyperparameter=["epochs=3", "name=a b"],
    )

    result = run(tree)

    assert result.code == 0
    assert f"  out é ['--epochs', '3', '--name', 'a b'] {tree.base / 'code'}\n" in result.out
    assert "err\n" in result.err
    assert "err\n" not in result.out
    assert tree.succeeded
    assert not tree.failed
    assert tree.read("output/success") == ""


def test_the_lines_that_people_search_for_are_in_the_log(folder, run):
    [tree] = make_trees(folder, "", hyperparameter=["epochs=3"])

    log = run(tree).err

    for line in (
        "Invoking user script",
        "Training Env:",
        "Environment variables:",
        "SM_HP_EPOCHS=3",
        "Invoking script with the following command:",
        "Reporting training SUCCESS",
    ):
        assert line in log
    assert " sagemaker-training-toolkit INFO     Reporting training SUCCESS" in log


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


def test_a_shell_entry_point_runs_as_a_command(folder, run):
    [tree] = make_trees(
        folder, '#!/bin/sh\nprintf "%s|" "$@"\n', name="go.sh", hyperparameter=["v=a $b 'c'"]
    )

    result = run(tree)

    assert result.code == 0
    assert "-v|a $b 'c'|" in result.out


def test_an_interpreter_behind_a_script_is_asked_where_it_is(folder, run):
    """As pyenv and its like do it: python3 on PATH is a shell script."""
    [tree] = make_trees(folder, "import sys; print(sys.executable)", processes=1)
    (folder / "bin").mkdir()
    shim = folder / "bin" / "python3"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)

    plan = run(tree, "--plan", "--json", SM_LAUNCH_PYTHON=str(shim))

    assert json.loads(plan.out)["user_command"][:3] == [sys.executable, "-m", "mpi4py"]


# --- bad input -----------------------------------------------------------------------------------


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


def test_plan_changes_nothing(folder, run):
    [tree] = make_trees(folder, "print('never')")

    result = run(tree, "--plan", "--json")

    assert result.code == 0
    assert "never" not in result.out
    assert json.loads(result.out)["current_host"] == "algo-1"
    assert not tree.succeeded
    assert json.loads(run(tree, SM_LAUNCH_DRY_RUN="1").out) == json.loads(result.out)


def test_doctor_finds_what_is_missing(folder, run):
    [tree] = make_trees(folder, "")

    good = run(tree, "--doctor")
    (tree.base / "input/config/resourceconfig.json").unlink()
    bad = run(tree, "--doctor")

    assert "ok       config" in good.out
    assert "host algo-1 of 1" in good.out
    assert bad.code == 1
    assert "bad      config" in bad.out
    assert "train --make-tree" in bad.out


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_that_the_script_does_not_handle(folder, start, number):
    [tree] = make_trees(
        folder,
        """
        import signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("up", flush=True)
        signal.pause()
        """,
    )
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(number)

    assert running.finish().code == 128 + number
    assert f"asked to stop by {number.name}" in tree.failure


def test_a_script_that_handles_the_stop_succeeds(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP)
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0
    assert "stopped -" in result.out
    assert tree.succeeded
    assert not tree.failed


def test_a_script_that_ignores_the_stop_is_killed_in_time(folder, start):
    [tree] = make_trees(
        folder,
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        while True:
            signal.pause()
        """,
    )
    running = start(tree, SM_LAUNCH_STOP_SECONDS="1")
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    assert running.finish().code == 143
    assert "ExitCode -9" in tree.failure


def test_nohup_is_respected_and_an_ignored_sigchld_does_no_harm(folder):
    [tree] = make_trees(folder, "import os, signal; os.kill(os.getppid(), signal.SIGHUP); exit(0)")

    process = subprocess.run(
        [train_binary()],
        check=False,
        env=job_environment(SAGEMAKER_BASE_DIR=str(tree.base)),
        capture_output=True,
        timeout=LIMIT,
        preexec_fn=lambda: [
            signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGCHLD)
        ],
    )

    assert process.returncode == 0
    assert tree.succeeded


def test_user_signals_reach_the_script(folder, start):
    [tree] = make_trees(
        folder,
        """
        import signal, sys
        signal.signal(signal.SIGUSR1, lambda n, f: print("usr1", flush=True))
        signal.signal(signal.SIGUSR2, lambda n, f: sys.exit(0))
        print("up", flush=True)
        while True:
            signal.pause()
        """,
    )
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGUSR1)
    running.wait_for_line("usr1")
    running.process.send_signal(signal.SIGUSR2)

    assert running.finish().code == 0


def test_what_the_script_left_running_is_ended(folder, run):
    [tree] = make_trees(
        folder,
        """
        import subprocess
        child = subprocess.Popen(["setsid", "sleep", "1000"])
        print("left", child.pid)
        """,
    )

    result = run(tree)

    assert result.code == 0
    pid = int(result.out.split()[1])
    assert not Path(f"/proc/{pid}").exists()


def test_nothing_survives_the_launchers_own_death(folder, start):
    [tree] = make_trees(
        folder, "import os, signal; print('up', os.getpid(), flush=True); signal.pause()"
    )
    running = start(tree)
    running.wait_for_line("up")
    pid = int(running.seen[-1].split()[1])

    running.process.kill()
    running.process.wait()

    for _ in range(1000):  # the kernel kills it a moment later
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.01)
    pytest.fail("the script lives on")


def test_a_lot_of_output_comes_through_whole_and_in_order(folder, run):
    [tree] = make_trees(folder, "for i in range(200_000): print(i)")

    assert run(tree).out == "".join(f"{i}\n" for i in range(200_000))


# --- other commands ------------------------------------------------------------------------------


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


# --- MPI on one host -----------------------------------------------------------------------------


@needs_mpirun
def test_mpi_ranks_run_with_tags_hosts_and_their_environment(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, socket
        from mpi4py import MPI
        total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
        print("sum", total, socket.gethostname(), os.environ["SM_CURRENT_HOST"],
              os.environ["MASTER_PORT"], os.environ["OMP_NUM_THREADS"])
        """,
        processes=4,
    )

    result = run(tree)

    assert result.code == 0, result.err
    threads = max(1, os.cpu_count() // 4)
    for rank in range(4):
        line = f"[1,mpirank:{rank},algo-1]<stdout>:sum 6 algo-1 algo-1 7777 {threads}\n"
        assert line in result.out
    assert "OMP_NUM_THREADS is not set" in result.err
    assert tree.succeeded


@needs_mpirun
def test_an_exception_on_one_rank_ends_all_and_leads_the_failure_text(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, signal
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 3:
            raise ValueError("boom on three")
        signal.pause()
        """,
        processes=4,
    )
    started = time.monotonic()

    result = run(tree)

    print(f"ended after {time.monotonic() - started:.1f} s")
    assert result.code == 1
    assert 'ErrorMessage "rank 3 on algo-1: ValueError: boom on three' in tree.failure[:1024]
    assert "Traceback of rank 3 on algo-1:" in tree.failure


@needs_mpirun
def test_a_killed_rank_ends_all(folder, run):
    [tree] = make_trees(
        folder,
        """
        import os, signal
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        """,
        processes=2,
    )

    assert run(tree).code == 1
    assert "ExitCode 137" in tree.failure
    assert "process rank 1" in tree.failure


@needs_mpirun
def test_an_exit_code_of_a_rank_is_reported(folder, run):
    [tree] = make_trees(folder, "raise SystemExit(7)", processes=2)

    assert run(tree, SM_LAUNCH_EXIT="propagate").code == 7
    assert "ExitCode 7" in tree.failure


@needs_mpirun
def test_a_stop_reaches_every_rank_once_and_their_last_words_come_out(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, processes=3)
    running = start(tree)
    running.wait_for_line("up", times=3)

    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert sorted(line.split()[-1] for line in result.out.splitlines() if "stopped" in line) == [
        "0",
        "1",
        "2",
    ]
    assert tree.succeeded
