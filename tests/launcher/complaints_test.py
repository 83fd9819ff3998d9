# SPDX-License-Identifier: Apache-2.0
"""Complaints that users of the reference published, by their number in entrypoint.md, section 14:
signals, output and failure text on one host. Those of two hosts are in two_hosts_losses_test.py."""

from __future__ import annotations

import signal

import pytest
from jobs import WAIT_FOR_STOP, make_trees


def test_complaints_01_and_03_sigterm_of_a_stop_request_reaches_the_script(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP)
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert (result.code, tree.succeeded) == (0, True)
    assert "stopped -" in result.out


def test_complaint_02_a_spot_notice_leaves_time_for_a_checkpoint(folder, start):
    script = """
        import os, pathlib, signal, sys, time
        model = pathlib.Path(os.environ["SM_MODEL_DIR"])
        def save(number, frame):
            time.sleep(1.5)  # what a checkpoint takes
            (model / "checkpoint").write_text("step 17")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("up", flush=True)
        while True:
            time.sleep(0.1)
    """
    [tree] = make_trees(folder, script)
    running = start(tree)
    running.wait_for_line("up")

    running.process.send_signal(signal.SIGTERM)

    assert running.finish().code == 0
    assert tree.read("model/checkpoint") == "step 17"


def test_complaint_11_a_marker_that_cannot_be_written_fails_the_job(folder, run):
    script = """
        import os, pathlib
        output = pathlib.Path(os.environ["SM_OUTPUT_DIR"])
        (output / "success").mkdir()
    """
    [tree] = make_trees(folder, script)

    result = run(tree)

    assert result.code == 1
    assert "output/success: cannot be created" in result.err


def test_complaint_12_the_user_sets_the_failure_reason(folder, run):
    script = "import os; open(os.environ['SM_OUTPUT_DIR'] + '/failure', 'w').write('my reason')\n"
    [tree] = make_trees(folder, script + "raise SystemExit(3)")

    assert run(tree).code == 1
    assert tree.failure == "my reason"


@pytest.mark.parametrize("module", ["", "sagemaker_pytorch_container.training:main"])
def test_complaint_13_both_streams_stay_apart_whole_and_in_order(folder, run, module):
    script = """
        import sys
        for i in range(3000):
            print(f"  out {i}\\n")
            print(f"\\terr {i}", file=sys.stderr)
    """
    [tree] = make_trees(folder, script)

    result = run(tree, **({"SAGEMAKER_TRAINING_MODULE": module} if module else {}))

    assert result.code == 0
    assert result.out == "".join(f"  out {i}\n\n" for i in range(3000))
    err = [line for line in result.err.splitlines() if line.startswith("\terr ")]
    assert err == [f"\terr {i}" for i in range(3000)]


def test_complaint_16_a_failing_installation_shows_its_cause(folder, run):
    files = {"requirements.txt": "no-such-distribution-anywhere==1\n"}
    [tree] = make_trees(folder, "", files=files)

    run(tree, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")

    assert 'ErrorMessage "ERROR: No matching distribution found' in tree.failure[:1024]


def test_complaint_16_a_failing_setup_shows_the_exception_of_setup_py(folder, run):
    files = {"setup.py": "raise RuntimeError('no compiler for this')\n"}
    [tree] = make_trees(folder, "", files=files)

    run(tree, PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0", PIP_DISABLE_PIP_VERSION_CHECK="1")

    assert tree.failure.startswith("InstallModuleError:\n")
    assert "RuntimeError: no compiler for this" in tree.failure[:1024]


def test_complaint_29_a_failure_always_has_a_message(folder, run):
    [tree] = make_trees(folder, "raise SystemExit(3)")

    run(tree)

    assert "ExitCode 3" in tree.failure
    assert 'ErrorMessage "it ended without having written anything"' in tree.failure


def test_complaint_30_an_exception_of_any_name_leads_the_failure_text(folder, run):
    script = """
        import sys
        class Unheard(BaseException):
            pass
        print("RuntimeErrorRate=0 ValueError: a metric", file=sys.stderr)
        raise Unheard("of by any list of words")
    """
    [tree] = make_trees(folder, script)

    run(tree)

    assert 'ErrorMessage "Unheard: of by any list of words' in tree.failure.replace("__main__.", "")


def test_complaint_30_an_abort_of_cpp_code_leads_the_failure_text(folder, run):
    script = """
        import os, sys
        print("step 1", file=sys.stderr)
        print("terminate called after throwing an instance of 'c10::Error'", file=sys.stderr)
        print("  what():  tensors differ in size", file=sys.stderr, flush=True)
        print("some cleanup", file=sys.stderr, flush=True)
        os.abort()
    """
    [tree] = make_trees(folder, script)

    run(tree)

    shown = tree.failure[:1024]
    assert "ErrorMessage \"terminate called after throwing an instance of 'c10::Error'" in shown
    assert "what():  tensors differ in size" in shown
    assert "SIGABRT (signal 6)" in shown


def test_complaint_32_a_script_that_floods_both_streams_does_not_hang(folder, run):
    script = """
        import os, threading
        def flood(stream):
            for _ in range(400):
                os.write(stream, b"x" * 65535 + b"\\n")
        threads = [threading.Thread(target=flood, args=[stream]) for stream in (1, 2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    [tree] = make_trees(folder, script)

    result = run(tree)

    assert result.code == 0
    assert len(result.out) == 400 * 65536
    assert sum(line.startswith("x" * 65535) for line in result.err.splitlines()) == 400


def test_complaint_33_a_progress_bar_comes_through_while_it_is_drawn(folder, start):
    script = """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        for done in range(0, 101, 25):
            os.write(2, f"\\r{done:3}%".encode())
        signal.sigwait([signal.SIGUSR1])
        os.write(2, b"\\n")
    """
    [tree] = make_trees(folder, script)
    running = start(tree, SM_LAUNCH_MERGE="1")

    running.wait_for_line(" 75%")  # the line has not ended
    running.process.send_signal(signal.SIGUSR1)

    result = running.finish()
    assert result.code == 0
    steps = [line.strip() for line in result.out.splitlines() if "%" in line]
    assert steps == ["0%", "25%", "50%", "75%", "100%"]
