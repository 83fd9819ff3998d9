# SPDX-License-Identifier: Apache-2.0
"""`train` on one host with one process: streams, log lines, entry points, plan and doctor."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest
from jobs import job_environment, make_trees
from runners import needs_mpirun


def snapshot(base):
    """Every file below with its time and size."""
    paths = [base, *base.rglob("*")]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


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
        "Invoking script with the following command:",
        "Reporting training SUCCESS",
    ):
        assert line in log
    assert " sagemaker-training-toolkit INFO     Reporting training SUCCESS" in log
    assert "SM_HP_EPOCHS=3\n" not in log


def test_the_whole_environment_is_in_the_log_at_level_10(folder, run):
    [tree] = make_trees(folder, "", hyperparameter=["epochs=3"])

    log = run(tree, SM_LOG_LEVEL="10").err

    assert "\nTraining Env:\n\n{" in log
    assert "\nSM_HP_EPOCHS=3\n" in log
    assert "\nSM_LOG_LEVEL=10\n" in log


@pytest.mark.parametrize(
    ("tool", "count", "said"),
    [
        ("echo 'GPU 0: H200 (UUID: a)'; echo 'GPU 1: H200 (UUID: b)'", 2, False),
        ("exit 9", 0, True),
    ],
)
def test_the_log_says_how_many_gpus_there_are(folder, run, tool, count, said):
    (folder / "bin").mkdir()
    nvidia_smi = folder / "bin" / "nvidia-smi"
    nvidia_smi.write_text(f"#!/bin/sh\n{tool}\n")
    nvidia_smi.chmod(0o755)
    [tree] = make_trees(folder, "")

    log = run(tree, PATH=f"{folder / 'bin'}:{job_environment()['PATH']}").err

    assert f" gpus={count} " in log
    assert ("No GPUs detected (normal if no gpus installed)" in log) == said


def test_text_that_is_no_json_is_one_line_for_those_who_ask(folder, run):
    [tree] = make_trees(folder, "")
    (tree.base / "input/config/hyperparameters.json").write_text(
        json.dumps({"sagemaker_program": '"train.py"', "name": "a b", "n": "3", "mode": "fast"})
    )

    usual = run(tree)
    asked = run(tree, SAGEMAKER_CONTAINER_LOG_LEVEL="10")

    assert "JSON" not in usual.err
    assert "Hyperparameters that are text and not JSON: name, mode\n" in asked.err


def test_a_lot_of_output_comes_through_whole_and_in_order(folder, run):
    [tree] = make_trees(folder, "for i in range(200_000): print(i)")

    assert run(tree).out == "".join(f"{i}\n" for i in range(200_000))


LONG = """
    import os, sys
    with open(os.environ["SM_HP_SIZES_FILE"]) as file:
        sizes = file.read()
    os.write(1, f"got {len(sizes)} {'--sizes' in sys.argv} {sys.argv[1:]}\\n".encode())
"""


@pytest.mark.parametrize("name", ["train.py", "go.sh"])
@pytest.mark.parametrize("ranks", [{}, pytest.param({"processes": 2}, marks=needs_mpirun)])
def test_a_value_that_no_argument_holds_is_in_a_file(folder, run, name, ranks):
    shell = '#!/bin/sh\nexec python3 read.py "$@"\n'
    (folder / "data").mkdir()
    (folder / "data" / "sizes.json").write_text(json.dumps(list(range(40_000))))
    [tree] = make_trees(
        folder,
        LONG if name == "train.py" else shell,
        name=name,
        files={"read.py": textwrap.dedent(LONG)},
        channel=f"train={folder / 'data'}",
        hyperparameter=["sizes=@file:train/sizes.json", "lr=0.1"],
        **ranks,
    )

    result = run(tree)

    assert result.code == 0, result.err
    bytes_there = len(json.dumps(list(range(40_000)), separators=(",", ":")))
    said = f"got {bytes_there} False ['--lr', '0.1']"
    assert result.out.count(said) == ranks.get("processes", 1)
    assert "; read the file that SM_HP_SIZES_FILE names" in result.err


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("folder.joinpath('step-1').mkdir()", "the job's model is empty"),
        ("Path('model.pt').write_text('x')", "; new in {code}: model.pt"),
        ("folder.joinpath('empty').touch()", "the job's model is empty"),
        ("folder.joinpath('a').mkdir(); folder.joinpath('a/b').write_text('x')", ""),
    ],
)
def test_a_model_without_a_byte_in_any_file_is_warned_of(folder, run, script, said):
    head = "import os; from pathlib import Path; folder = Path(os.environ['SM_MODEL_DIR'])\n"
    [tree] = make_trees(folder, head + script + "\n")

    result = run(tree)

    assert result.code == 0, result.err
    warned = [line for line in result.err.splitlines() if "model is empty" in line]
    assert len(warned) == (said != "")
    assert said.format(code=tree.base / "code") in "".join(warned)


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


def test_plan_changes_nothing(folder, run):
    [tree] = make_trees(folder, "print('never')", hyperparameter=[f"long={'x' * 90_000}"])
    (tree.base / "code" / "requirements.txt").write_text("no-such-package-anywhere\n")
    before = snapshot(tree.base)

    result = run(tree, "--plan", "--json")

    assert result.code == 0
    assert "never" not in result.out
    assert json.loads(result.out)["current_host"] == "algo-1"
    assert json.loads(run(tree, SM_LAUNCH_DRY_RUN="1").out) == json.loads(result.out)
    assert snapshot(tree.base) == before


def test_plan_shows_what_another_host_would_do(folder, run):
    trees = make_trees(
        folder, "", hosts=2, processes=2, **{"mp-parameters": '{"partitions": 2, "ddp": true}'}
    )

    plans = [json.loads(run(tree, "--plan", "--json").out) for tree in trees]
    text = run(trees[1], "--plan").out

    assert [plan["role"] for plan in plans] == ["master", "worker"]
    assert plans[0]["ranks"] == plans[1]["ranks"]
    ranks = [(r["host"], r["pp_rank"], r["tp_rank"], r["dp_rank"]) for r in plans[1]["ranks"]]
    assert ranks == [
        ("algo-1", 0, 0, 0),
        ("algo-1", 1, 0, 0),
        ("algo-2", 0, 0, 1),
        ("algo-2", 1, 0, 1),
    ]
    assert "algo-2, worker" in text
    assert "rdp  host" in text
    assert f"SM_MODEL_DIR={trees[1].base / 'model'}" in text
    assert not any(tree.succeeded or tree.failed for tree in trees)


@needs_mpirun
def test_a_folder_where_mpirun_can_make_nothing_is_found_before_it_starts(folder, run):
    [tree] = make_trees(folder, "print('started')", processes=1)

    result = run(tree, TMPDIR="/proc/sys/kernel")

    assert result.code == 1
    assert "started" not in result.out
    assert tree.failure.startswith(
        "/proc/sys/kernel: mpirun has to make a folder there, and cannot"
    )
    doctor = run(tree, "--doctor", TMPDIR="/proc/sys/kernel")
    assert "/proc/sys/kernel is not writable" in doctor.out


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


def test_doctor_looks_at_all_that_the_specification_names(folder, run):
    [tree, _] = make_trees(folder, "", hosts=2, processes=1)

    result = run(tree, "--doctor", "--json")

    report = json.loads(result.out)
    by_subject = {finding["subject"]: finding for finding in report["findings"]}
    assert {
        "config", "plan", "torch", "driver", "fabric", "memlock", "/dev/shm",
        "disk", "interface", "host algo-1", "host algo-2", "encryption",
    } <= by_subject.keys()  # fmt: skip
    assert by_subject["host algo-2"]["health"] == "bad"  # nobody started it
    assert "network" in by_subject["host algo-2"]["remedy"]
    assert (result.code, report["healthy"]) == (1, False)
    assert all(finding["remedy"] for finding in report["findings"] if finding["health"] == "bad")
    assert not tree.succeeded and not tree.failed
