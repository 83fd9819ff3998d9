# SPDX-License-Identifier: Apache-2.0
"""Every runner with what it really starts: mpirun, torchrun, a training module, other programs."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import socket
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import Result, Tree, make_trees

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="no torch beside this interpreter"
)
needs_hosts = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

PYTORCH = "sagemaker_pytorch_container.training:main"
TORCHRUN = ["sagemaker_torch_distributed_enabled=true"]
SMDDP = ["sagemaker_distributed_dataparallel_enabled=true"]
RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")

# Scripts speak by one write a line: torchrun's workers share a pipe, and print() writes piecewise.
TELL_RANK = f"""
    import json, os, socket
    names = {(*RANK_NAMES, "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "SM_CURRENT_HOST")!r}
    told = {{name: os.environ.get(name) for name in names}} | {{"host": socket.gethostname()}}
    os.write(1, ("told " + json.dumps(told) + "\\n").encode())
"""

# A sum over all processes, through the network.
ALL_REDUCE = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    host = os.environ["SM_CURRENT_HOST"]
    os.write(1, f"sum {int(total)} rank {dist.get_rank()} {host}\\n".encode())
    dist.destroy_process_group()
"""

# One rank says where it is when both are there; each says once that it was told to stop.
WAIT_FOR_STOP = """
    import os, signal, sys
    def stop(number, frame):
        os.write(1, f"stopped {os.environ['RANK']}\\n".encode())
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    os.write(1, f"up {os.environ['RANK']}\\n".encode())
    while True:
        signal.pause()
"""


def processes(count: int) -> str:
    return f"sagemaker_mpi_num_of_processes_per_host={count}"


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def told(result: Result) -> list[dict[str, str]]:
    """What the ranks said of themselves, by rank."""
    lines = [line.split("told ", 1)[1] for line in result.out.splitlines() if "told " in line]
    return sorted((json.loads(line) for line in lines), key=lambda one: int(one["RANK"] or -1))


# --- torchrun ------------------------------------------------------------------------------------


@needs_torch
def test_torchrun_starts_workers_that_meet_over_gloo(folder, run):
    [tree] = make_trees(folder, ALL_REDUCE, hyperparameter=[*TORCHRUN, processes(2)])

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    assert sorted(line for line in result.out.splitlines() if line.startswith("sum")) == [
        "sum 3 rank 0 algo-1",
        "sum 3 rank 1 algo-1",
    ]
    assert "Invoking TorchDistributed..." in result.err
    assert tree.succeeded


@needs_torch
def test_torchrun_workers_know_their_ranks_and_their_share_of_cpus(folder, run):
    [tree] = make_trees(folder, TELL_RANK, hyperparameter=[*TORCHRUN, processes(2)])
    port = free_port()

    ranks = told(run(tree, MASTER_PORT=port, OMP_NUM_THREADS="3"))

    assert [[one[name] for name in RANK_NAMES] for one in ranks] == [
        ["0", "0", "2", "2"],
        ["1", "1", "2", "2"],
    ]
    for one in ranks:
        assert one["MASTER_PORT"] == port
        assert one["OMP_NUM_THREADS"] == "3"
        assert one["host"] == "algo-1"


@needs_torch
@pytest.mark.parametrize("native", ["true", "false"])
def test_torchrun_that_fails_fails_the_job_with_the_workers_error(folder, run, native):
    """The reference never looks at its exit code when the native launcher is asked for."""
    script = """
        import os, signal
        if os.environ["RANK"] == "1":
            raise ValueError("boom on one")
        signal.pause()
    """
    switch = f"sagemaker_toolkit_native_launcher_enabled={native}"
    [tree] = make_trees(folder, script, hyperparameter=[*TORCHRUN, processes(2), switch])

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 1
    assert "ValueError: boom on one" in tree.failure[:1024]
    assert not tree.succeeded


@needs_torch
def test_a_stop_reaches_torchruns_workers_and_their_good_end_is_the_jobs(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, hyperparameter=[*TORCHRUN, processes(2)])
    running = start(tree, MASTER_PORT=free_port())
    running.wait_for_line("up", times=2)

    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert sorted(line for line in result.out.splitlines() if "stopped" in line) == [
        "stopped 0",
        "stopped 1",
    ]
    assert tree.succeeded


@needs_torch
def test_torchruns_workers_that_ignore_the_stop_are_killed_in_time(folder, start):
    script = """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, f"up {os.getpid()}\\n".encode())
        while True:
            signal.pause()
    """
    [tree] = make_trees(folder, script, hyperparameter=[*TORCHRUN, processes(2)])
    running = start(tree, MASTER_PORT=free_port(), SM_LAUNCH_STOP_SECONDS="2")
    running.wait_for_line("up", times=2)
    workers = [line.split()[1] for line in running.seen if line.startswith("up")]

    running.process.send_signal(signal.SIGTERM)

    assert running.finish().code == 143
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []


@needs_torch
def test_torchrun_is_refused_for_packages_before_anything_starts(folder, run):
    [tree] = make_trees(
        folder, "", hyperparameter=[*TORCHRUN, processes(1)], files={"setup.py": ""}
    )

    assert run(tree).code == 1
    assert tree.failure.startswith("Python packages are not supported for torch_distributed.")


@needs_torch
@needs_hosts
def test_torchrun_workers_of_two_hosts_meet_over_gloo(folder):
    trees = make_trees(folder, ALL_REDUCE, hosts=2, hyperparameter=[*TORCHRUN, processes(2)])
    with Cluster(folder, trees) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for host, ranks in ((0, (0, 1)), (1, (2, 3))):
        lines = sorted(line for line in results[host].out.splitlines() if line.startswith("sum"))
        assert lines == [f"sum 10 rank {rank} algo-{host + 1}" for rank in ranks]
    assert all(result.tree.succeeded for result in results)


# --- SMDDP ---------------------------------------------------------------------------------------


@needs_mpirun
def test_smddp_ranks_get_the_variables_that_its_scripts_read(folder, run):
    [tree] = make_trees(folder, TELL_RANK, hyperparameter=[*SMDDP, processes(3)])

    result = run(tree)

    assert result.code == 0, result.err
    assert [[one[name] for name in RANK_NAMES] for one in told(result)] == [
        [str(rank), str(rank), "3", "3"] for rank in range(3)
    ]
    for one in told(result):
        assert (one["host"], one["SM_CURRENT_HOST"]) == ("algo-1", "algo-1")
        assert one["MASTER_PORT"] == "7777"
        assert one["MASTER_ADDR"] in ("algo-1", "127.0.0.1")
    assert "Invoking SMDataParallel" in result.err
    assert "[1,mpirank:2,algo-1]<stdout>:told" in result.out


@needs_mpirun
def test_mpi_ranks_get_none_of_them(folder, run):
    """Libraries that find RANK set take the job for torchrun's."""
    [tree] = make_trees(folder, TELL_RANK, processes=2)

    ranks = told(run(tree))

    assert len(ranks) == 2
    assert all(one[name] is None for one in ranks for name in RANK_NAMES)


@needs_mpirun
@needs_torch
def test_native_ddp_over_smddp_trains(folder, run):
    [tree] = make_trees(
        folder,
        ALL_REDUCE,
        hyperparameter=["sagemaker_pytorch_ddp_enabled=true", processes(2)],
    )

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    for rank in range(2):
        assert f"[1,mpirank:{rank},algo-1]<stdout>:sum 3 rank {rank} algo-1\n" in result.out


@needs_mpirun
def test_a_stop_reaches_smddp_ranks(folder, start):
    [tree] = make_trees(folder, WAIT_FOR_STOP, hyperparameter=[*SMDDP, processes(2)])
    running = start(tree)
    running.wait_for_line("up", times=2)

    running.process.send_signal(signal.SIGTERM)

    result = running.finish()
    assert result.code == 0, result.err
    assert result.out.count("stopped") == 2


@needs_hosts
def test_smddp_runs_over_two_hosts_each_with_its_own_variables(folder):
    trees = make_trees(folder, TELL_RANK, hosts=2, hyperparameter=[*SMDDP, processes(2), "lr=0.1"])
    with Cluster(folder, trees) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    ranks = told(results[0])
    assert [[one[name] for name in RANK_NAMES] for one in ranks] == [
        ["0", "0", "4", "2"],
        ["1", "1", "4", "2"],
        ["2", "0", "4", "2"],
        ["3", "1", "4", "2"],
    ]
    assert [one["SM_CURRENT_HOST"] for one in ranks] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [one["host"] for one in ranks] == [one["SM_CURRENT_HOST"] for one in ranks]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("algo-1", "7777")}
    assert all(result.tree.succeeded for result in results)


# --- MPI: what the ranks are given ---------------------------------------------------------------


@needs_mpirun
def test_complaint_24_without_mpi4py_a_failing_rank_ends_the_job_all_the_same(folder, run):
    """`-S` leaves out site-packages, so this interpreter has no mpi4py."""
    script = """
        import os, signal
        if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            raise ValueError("boom")
        signal.pause()
    """
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
    python.chmod(0o755)
    [tree] = make_trees(folder, script, processes=2)

    result = run(tree, SM_LAUNCH_PYTHON=str(python))

    assert "has no mpi4py" in result.err
    assert result.code == 1
    assert 'ErrorMessage "rank 1 on algo-1: ValueError: boom' in tree.failure


@needs_mpirun
def test_complaints_8_and_9_options_listed_twice_do_no_harm_to_the_real_mpirun(folder, run):
    options = (
        "--mca btl_vader_single_copy_mechanism none --map-by slot -x NOTE='a b' -x NCCL_DEBUG=X"
    )
    [tree] = make_trees(
        folder,
        """
        import os
        print("note", os.environ["NOTE"], os.environ["NCCL_DEBUG"])
        """,
        processes=2,
        hyperparameter=[f"sagemaker_mpi_custom_mpi_options={options}"],
    )

    result = run(tree)

    assert result.code == 0, result.err
    assert result.out.count("note a b X\n") == 2


@needs_mpirun
@pytest.mark.parametrize("mpi", [True, False])
def test_values_too_long_for_a_variable_come_as_files(folder, run, mpi):
    """Sixty values at the service's limit, together more than Linux lets one variable hold."""
    script = """
        import json, os
        assert "SM_HPS" not in os.environ
        with open(os.environ["SM_HPS_FILE"]) as file:
            values = json.load(file)
        with open(os.environ["SM_TRAINING_ENV_FILE"]) as file:
            environment = json.load(file)
        assert values == environment["hyperparameters"], environment
        print("read", len(values), len(values["text-59"]), len(os.environ["SM_HP_TEXT-59"]))
    """
    values = [f"text-{number:02}={'x' * 2500}" for number in range(60)]
    options = {"processes": 2} if mpi else {}
    [tree] = make_trees(folder, script, hyperparameter=values, **options)

    result = run(tree, SM_HPS="of another job")

    assert result.code == 0, result.err[-2000:]
    assert result.out.count("read 60 2500 2500\n") == (2 if mpi else 1)
    assert "SM_HPS_FILE names a file with it" in result.err


# --- heterogeneous and share-nothing jobs --------------------------------------------------------


def in_groups(trees: list[Tree], groups: dict[str, list[str]]) -> None:
    """Puts the hosts of the trees into groups, whose order in the file is the dict's."""
    for tree in trees:
        file = tree.base / "input/config/resourceconfig.json"
        config = json.loads(file.read_text())
        [own] = [name for name, hosts in groups.items() if config["current_host"] in hosts]
        config["current_group_name"] = own
        config["instance_groups"] = [
            {"instance_group_name": name, "instance_type": f"ml.{name}.xlarge", "hosts": hosts}
            for name, hosts in groups.items()
        ]
        file.write_text(json.dumps(config))


@needs_hosts
def test_mpi_runs_in_two_groups_and_the_third_runs_the_plain_script(folder):
    script = """
        import os, socket
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", "-")
        print("at", rank, socket.gethostname(), os.environ["MASTER_ADDR"],
              os.environ["SM_CURRENT_INSTANCE_GROUP"], flush=True)
    """
    groups = '["big", "small"]'
    trees = make_trees(
        folder,
        script,
        hosts=3,
        processes=1,
        hyperparameter=f"sagemaker_distribution_instance_groups={groups}",
    )
    in_groups(trees, {"big": ["algo-3"], "data": ["algo-1"], "small": ["algo-2"]})
    with Cluster(folder, trees) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0, 0], "".join(r.err for r in results)
    assert results[0].out == "at - algo-1 algo-3 data\n"
    assert "group data takes no part in the distribution" in results[0].err
    assert "[1,mpirank:0,algo-3]<stdout>:at 0 algo-3 algo-3 big\n" in results[2].out
    assert "[1,mpirank:1,algo-2]<stdout>:at 1 algo-2 algo-3 small\n" in results[2].out


@needs_hosts
def test_hosts_that_share_nothing_end_each_by_itself(folder):
    script = """
        import os, sys
        print("alone on", os.environ["SM_CURRENT_HOST"], os.environ["MASTER_ADDR"])
        sys.exit(0 if os.environ["SM_CURRENT_HOST"] == "algo-1" else 3)
    """
    trees = make_trees(folder, script, hosts=2)
    with Cluster(folder, trees) as hosts:
        first, second = hosts.run()

    assert (first.code, second.code) == (0, 1)
    assert first.out == "alone on algo-1 algo-1\n"
    assert second.out == "alone on algo-2 algo-1\n"
    assert first.tree.succeeded
    assert "ExitCode 3" in second.tree.failure


# --- a training module of another framework ------------------------------------------------------


def test_a_foreign_training_module_is_imported_and_called(folder, run):
    module = """
        import os, sys

        def main():
            print("called", sys.argv, os.environ["SM_HP_LR"], os.environ["SM_FRAMEWORK_MODULE"])
    """
    [tree] = make_trees(folder, module, name="framework.py", hyperparameter="lr=0.1")

    result = run(tree, SAGEMAKER_TRAINING_MODULE="framework:main", SAGEMAKER_PROGRAM="absent.py")

    assert result.code == 0, result.err
    assert result.out == "called ['train'] 0.1 framework:main\n"
    assert "is not one that this launcher stands in for" in result.err
    assert "Imported framework framework" in result.err
    assert tree.succeeded


def test_a_training_module_that_raises_fails_the_job(folder, run):
    [tree] = make_trees(folder, "def main(): raise KeyError('lost')", name="framework.py")

    assert run(tree, SAGEMAKER_TRAINING_MODULE="framework:main").code == 1
    assert "KeyError: 'lost'" in tree.failure[:1024]
    assert run(tree, SAGEMAKER_TRAINING_MODULE="no_such_module:main").code == 1


# --- PyTorch's tolerance for gloo ----------------------------------------------------------------

ABORTED_BY_GLOO = """
    import os, sys
    print("terminate called after throwing an instance of 'gloo::EnforceNotMet'", file=sys.stderr)
    sys.stderr.flush()
    os.abort()
"""


def test_an_abort_by_gloo_counts_as_the_end_in_pytorch_images(folder, run):
    [tree] = make_trees(folder, ABORTED_BY_GLOO)

    result = run(tree, SAGEMAKER_TRAINING_MODULE=PYTORCH)

    assert result.code == 0
    assert "Known exception" in result.err
    assert tree.succeeded
    assert not tree.failed


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        (ABORTED_BY_GLOO, {}),
        (
            ABORTED_BY_GLOO,
            {"SAGEMAKER_TRAINING_MODULE": PYTORCH, "SM_LAUNCH_TOLERATE_GLOO_ABORT": "0"},
        ),
        (
            ABORTED_BY_GLOO.replace("os.abort()", "sys.exit(1)"),
            {"SAGEMAKER_TRAINING_MODULE": PYTORCH},
        ),
    ],
)
def test_any_other_end_with_these_words_is_a_failure(folder, run, script, environment):
    [tree] = make_trees(folder, script)

    assert run(tree, **environment).code == 1
    assert tree.failed


# --- Processing jobs -----------------------------------------------------------------------------


def a_processing_tree(folder: Path) -> Tree:
    """As the service lays it out: no input/config, no code."""
    tree = Tree(folder / "opt_ml")
    (tree.base / "config").mkdir(parents=True)
    (tree.base / "output").mkdir()
    (tree.base / "config/resourceconfig.json").write_text(
        json.dumps(
            {
                "hosts": ["algo-2", "algo-1"],
                "network_interface_name": "eth0",
                "current_instance_type": "ml.m5.xlarge",
                "current_host": "algo-2",
            }
        )
    )
    (tree.base / "config/processingjobconfig.json").write_text(
        json.dumps({"ProcessingJobName": "p", "AppSpecification": {"ImageUri": "i"}})
    )
    code = tree.base / "processing/input/code"
    code.mkdir(parents=True)
    (code / "process.py").write_text(
        "import os, socket, sys\n"
        "print(socket.gethostname(), os.uname().nodename, sys.argv[1:], os.getcwd())\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    entrypoint = tree.base / "processing/input/entrypoint"
    entrypoint.mkdir()
    (entrypoint / "runproc.sh").write_text(
        f'#!/bin/bash\nset -e\ncd {code}\npython3 process.py "$@"\n'
    )
    return tree


def test_a_processing_job_runs_its_own_entrypoint_under_the_jobs_host_name(folder, run):
    tree = a_processing_tree(folder)
    script = str(tree.base / "processing/input/entrypoint/runproc.sh")

    result = run(tree, "/bin/bash", script, "a b", "0")

    code = tree.base / "processing/input/code"
    assert (result.code, result.out) == (0, f"algo-2 algo-2 ['a b', '0'] {code}\n")
    assert not tree.succeeded  # markers belong to training
    assert not tree.failed


def test_a_processing_jobs_exit_code_is_its_own(folder, run):
    tree = a_processing_tree(folder)
    script = str(tree.base / "processing/input/entrypoint/runproc.sh")

    assert run(tree, "/bin/bash", script, "x", "7").code == 7
    assert not tree.failed
    assert run(tree, "sh", "-c", "kill -KILL $$").code == -signal.SIGKILL
    assert "ExitCode" not in run(tree, "false").err


# --- the hostname shim ---------------------------------------------------------------------------


def test_complaint_20_a_config_of_many_thousand_hosts_is_read_whole(folder, run):
    """Its `current_host` stands last, behind some 700 KB of other hosts."""
    [tree] = make_trees(folder, "")
    hosts = [f"algo-{number + 1}" for number in range(50_000)]
    (tree.base / "input/config/resourceconfig.json").write_text(
        json.dumps({"hosts": hosts, "current_host": "algo-50000"})
    )

    script = "import socket; print(socket.gethostname())"
    assert run(tree, "python3", "-c", script).out == "algo-50000\n"


def test_threads_that_ask_at_once_all_learn_the_same_name(folder, run):
    [tree] = make_trees(folder, "")
    script = (
        "import socket, threading\n"
        "names, gate = [], threading.Barrier(16)\n"
        "def ask():\n"
        "    gate.wait()\n"
        "    names.append(socket.gethostname())\n"
        "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(set(names))\n"
    )

    for _ in range(10):
        assert run(tree, "python3", "-c", script).out == "{'algo-1'}\n"
