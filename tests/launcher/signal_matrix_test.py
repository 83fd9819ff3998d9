# SPDX-License-Identifier: Apache-2.0
"""Every signal to every runner on one host and on two; nothing is left running afterwards.

Once in ci/test; many times in its `soak` group, where the moment of the signal differs each time.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import Running, Tree, make_trees

from tests.free_port import free_port

# One write a line: torchrun's workers share a pipe.
SCRIPT = """
    import os, signal, sys, time
    def say(*words):
        os.write(1, (" ".join(words) + "\\n").encode())
    def stop(number, frame):
        say("stopped", signal.Signals(number).name)
        sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: say("got", signal.Signals(number).name))
    say("up")
    while True:
        time.sleep(0.1)
"""

TORCHRUN = {"hyperparameter": ["sagemaker_torch_distributed_enabled=true",
                               "sagemaker_mpi_num_of_processes_per_host=2"]}  # fmt: skip
OPTIONS: dict[str, dict[str, object]] = {
    "process": {},
    "mpi": {"processes": 2},
    "torchrun": TORCHRUN,
}
RANKS_PER_HOST = {"process": 1, "mpi": 2, "torchrun": 2}

LACKS = {
    "mpi": "" if shutil.which("mpirun") else "no mpirun here",
    "torchrun": "" if importlib.util.find_spec("torch") else "no torch beside this interpreter",
}

matrix = pytest.mark.parametrize("runner", list(OPTIONS))
stops = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])


class Marked:
    """Processes of this machine that carry a test's own variable: its job and all that is below."""

    def __init__(self) -> None:
        self.value = uuid.uuid4().hex

    @property
    def environment(self) -> dict[str, str]:
        return {"SMP_TEST_MARK": self.value, "MASTER_PORT": free_port()}

    def left(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.value.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it ended just now, or is a zombie that its parent reaps
        return found

    def assert_none_left(self) -> None:
        """A process that was killed is gone a moment later."""
        deadline = time.monotonic() + 5
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.left() == []


def lines(text: str, word: str) -> list[str]:
    """The ranks' lines, mpirun's tags taken off."""
    return [line.split(">:")[-1] for line in text.splitlines() if f"{word} " in line]


def check(
    runner: str, running: list[Running], send: Callable[[int, signal.Signals], None], number: int
) -> None:
    ranks = RANKS_PER_HOST[runner]
    # mpirun's output all comes out of the master.
    speakers = [(running[0], ranks * len(running))] if runner == "mpi" else [
        (one, ranks) for one in running
    ]  # fmt: skip
    for one, count in speakers:
        one.wait_for_line("up", times=count)
    for user_signal in (signal.SIGUSR1, signal.SIGUSR2):
        for index in range(len(speakers)):
            send(index, user_signal)
        for one, count in speakers:
            one.wait_for_line(f"got {user_signal.name}", times=count)

    for index in reversed(range(len(running))):  # a stop reaches all containers of a job
        send(index, signal.Signals(number))

    results = [one.finish() for one in running]
    assert [result.code for result in results] == [0] * len(running), results[0].err
    expected = "SIGTERM" if runner == "mpi" else signal.Signals(number).name
    for (_, count), result in zip(speakers, results, strict=False):
        assert lines(result.out, "stopped") == [f"stopped {expected}"] * count
        assert len(lines(result.out, "got")) == 2 * count
    assert all(result.tree.succeeded and not result.tree.failed for result in results)


@matrix
@stops
def test_on_one_host(
    folder: Path, start: Callable[..., Running], runner: str, number: signal.Signals
) -> None:
    if LACKS.get(runner):
        pytest.skip(LACKS[runner])
    [tree] = make_trees(folder, SCRIPT, **OPTIONS[runner])
    marked = Marked()
    running = start(tree, **marked.environment)

    check(runner, [running], lambda _, sent: running.process.send_signal(sent), number)

    marked.assert_none_left()


@matrix
@stops
@pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")
def test_on_two_hosts(folder: Path, runner: str, number: signal.Signals) -> None:
    if LACKS.get(runner):
        pytest.skip(LACKS[runner])
    trees: list[Tree] = make_trees(folder, SCRIPT, hosts=2, **OPTIONS[runner])
    marked = Marked()
    with Cluster(folder, trees) as hosts:
        running = hosts.start_all(SMP_TEST_MARK=marked.value)

        check(runner, [*running], lambda index, sent: running[index].signal(sent), number)

        marked.assert_none_left()


@pytest.mark.skipif(bool(LACKS["mpi"]), reason=LACKS["mpi"] or "all there")
@pytest.mark.parametrize("moment", range(4))
def test_a_stop_while_ranks_are_starting_ends_the_job_soon(
    folder: Path, start: Callable[..., Running], moment: int
) -> None:
    """mpirun forwards a stop to the ranks that it knows of; it has to be said again."""
    [tree] = make_trees(folder, "import signal; signal.pause()", processes=2)
    marked = Marked()
    running = start(tree, **marked.environment)
    deadline = time.monotonic() + 20
    # Progress of the job: mpirun (which names the others), one shim, both, the interpreters.
    counts = {0: ("mpirun", 1), 1: ("--rank-exec", 2), 2: ("--rank-exec", 3), 3: ("mpi4py", 5)}
    word, count = counts[moment]
    while sum(word in one for one in marked.left()) < count and time.monotonic() < deadline:
        pass

    running.process.send_signal(signal.SIGTERM)
    before = time.monotonic()

    assert running.finish().code == 143
    assert time.monotonic() - before < 20
    marked.assert_none_left()
