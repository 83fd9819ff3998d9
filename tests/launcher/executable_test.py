# SPDX-License-Identifier: Apache-2.0
"""Programs that are no Python, of the code folder and of the image, alone and as ranks."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from jobs import LIMIT, job_environment, make_trees, train_binary

from tests.free_port import free_port

TRAINER = train_binary().with_name("launcher_trainer")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can mount a folder")
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")


def test_the_launcher_itself_is_hardened():
    """Addresses at random, tables read-only from the start on, and checks of stacks and sizes."""
    read = ["readelf", "--wide", "--file-header", "--dynamic", "--dyn-syms", train_binary()]
    shown = subprocess.run(read, check=True, capture_output=True, text=True).stdout

    assert "Position-Independent Executable" in shown
    assert "BIND_NOW" in shown
    assert "__stack_chk_fail" in shown
    assert re.search(r" __\w+_chk@", shown.replace("__stack_chk_fail", "")), "_FORTIFY_SOURCE"


@pytest.fixture
def trees(folder):
    """Trees whose program is the compiled trainer, in the code folder, without permissions."""

    def make(**options):
        made = make_trees(folder, "", name="trainer", hyperparameter="text=a b $c", **options)
        for tree in made:
            shutil.copyfile(TRAINER, tree.base / "code/trainer")
            (tree.base / "code/trainer").chmod(0o644)
        return made

    return make


def name_program(tree, path: str) -> None:
    (tree.base / "code/trainer").unlink(missing_ok=True)
    file = tree.base / "input/config/hyperparameters.json"
    parameters = json.loads(file.read_text()) | {"sagemaker_program": json.dumps(path)}
    file.write_text(json.dumps(parameters))


def test_one_process_gets_its_hyperparameters_as_arguments(trees, run):
    [tree] = trees()

    result = run(tree)

    assert result.code == 0, result.err
    assert result.out.splitlines() == [
        "rank - of - on algo-1 in code: [./trainer] [--text] [a b $c]",
        "job: text=a b $c",
    ]
    assert tree.succeeded


@pytest.mark.parametrize(
    ("before", "after"), [(0o644, 0o755), (0o600, 0o711), (0o664, 0o775), (0o755, 0o755)]
)
def test_a_start_lets_nobody_change_the_program(trees, run, before, after):
    [tree] = trees()
    program = tree.base / "code/trainer"
    program.chmod(before)

    assert run(tree).code == 0
    assert stat.S_IMODE(program.stat().st_mode) == after


def test_a_linked_program_is_made_executable(trees, run):
    [tree] = trees()
    program = tree.base / "code/trainer"
    program.rename(tree.base / "code/real")
    program.symlink_to("real")

    assert run(tree).code == 0
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2"'
ANOTHER_USER = 'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$2"'


@needs_root
@pytest.mark.parametrize(
    ("script", "reason"),
    [(READ_ONLY, "Read-only file system"), (ANOTHER_USER, "Operation not permitted")],
)
def test_a_program_that_cannot_be_changed_runs_where_it_may(trees, folder, script, reason):
    [tree] = trees()
    program = tree.base / "code/trainer"
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)

    def start() -> int:
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", tree.base / "code", train_binary()],
            env=job_environment(SAGEMAKER_BASE_DIR=str(tree.base), MASTER_PORT=free_port()),
            capture_output=True, text=True, timeout=LIMIT, check=False,
        ).returncode  # fmt: skip

    program.chmod(0o644)
    assert start() == 1
    message = f"{program}: has no execute permission and cannot be given it: {reason};"
    assert tree.failure.startswith(message)
    for mode in (0o755, 0o715):
        program.chmod(mode)
        assert start() == 0
        assert stat.S_IMODE(program.stat().st_mode) == mode


@needs_mpirun
def test_ranks_are_started_by_mpirun(trees, run):
    [tree] = trees(processes=3)

    result = run(tree)

    assert result.code == 0, result.err
    for rank in range(3):
        line = f"rank {rank} of 3 on algo-1 in code: [./trainer] [--text] [a b $c]"
        assert f"[1,mpirank:{rank},algo-1]<stdout>:{line}\n" in result.out
        assert f"[1,mpirank:{rank},algo-1]<stdout>:job: text=a b $c\n" in result.out
    assert tree.succeeded


@needs_mpirun
def test_what_a_rank_did_not_catch_leads_the_failure_text(folder, run):
    [tree] = make_trees(folder, "", name="trainer", processes=2, hyperparameter="throw=no data")
    shutil.copyfile(TRAINER, tree.base / "code/trainer")

    result = run(tree)

    assert result.code == 1
    message = tree.failure[: tree.failure.index("Command")]
    assert 'ErrorMessage "rank 1 on algo-1: terminate called after throwing' in message
    assert "\n  what():  no data" in message
    assert "SIGABRT" in message


def test_an_exit_code_is_reported(folder, run):
    [tree] = make_trees(folder, "", name="trainer", hyperparameter="exit=7")
    shutil.copyfile(TRAINER, tree.base / "code/trainer")

    assert run(tree, SM_LAUNCH_EXIT="propagate").code == 7
    assert "ExitCode 7" in tree.failure


def test_a_program_of_the_image_is_found_by_name_or_path(trees, folder, run):
    [tree] = trees()
    image = folder / "image"
    image.mkdir()
    program = shutil.copy(TRAINER, image / "our_trainer")

    name_program(tree, "our_trainer")
    by_name = run(tree, PATH=f"{image}:/usr/bin:/bin")
    name_program(tree, str(program))
    by_path = run(tree)

    assert by_name.code == 0, by_name.err
    assert by_path.code == 0, by_path.err
    assert by_name.out == by_path.out
    assert f"code: [{program}] [--text]" in by_path.out


def test_the_plan_shows_command_and_kind(trees, run):
    [tree] = trees(processes=2)

    plan = run(tree, "--plan").out

    assert "Kind:       executable\n" in plan
    assert "--rank-exec -- ./trainer --text 'a b $c'\n" in plan


def test_what_cannot_be_executed_is_one_sentence(trees, folder, run):
    [tree] = trees()
    program = folder / "program"
    shutil.copyfile(TRAINER, program)
    name_program(tree, str(program))

    forbidden = run(tree)
    assert (forbidden.code, tree.failure) == (
        1,
        f'entry point "{program}": {program} has no execute permission; give it one where the '
        f"image is built (RUN chmod +x {program})",
    )
    program.unlink()
    assert run(tree).code == 1
    assert tree.failure.startswith(f'entry point "{program}": no such file in the image;')
    program.mkdir()
    assert run(tree).code == 1
    assert f"{program} is a folder" in tree.failure


def test_a_library_that_is_missing_is_advised_on(folder, run):
    [tree] = make_trees(
        folder,
        """
        echo "./trainer: error while loading shared libraries: libtorch.so: cannot open shared" \\
          "object file: No such file or directory" >&2
        exit 127
        """,
        name="run.sh",
    )

    assert run(tree).code == 1
    assert "ErrorMessage" in tree.failure
    assert "LD_LIBRARY_PATH" in tree.failure
