# SPDX-License-Identifier: Apache-2.0
"""Runs scripts for `python3` beside it, in forks of a process that has imported torch, and modules:

    python server.py FOLDER [MODULE...]

Listens at FOLDER/socket until its standard input ends. Each connection has a process that watches
over the script's: it passes signals on, kills the script's process group when the connection ends,
and tells how the script ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import traceback
import types
from pathlib import Path
from types import TracebackType

import torch._dynamo  # takes the seconds; optimizers import it
import torch.distributed

FDS = 3


class Script(Exception):
    """Thrown out of the server's loop, so that a script runs at the bottom of its process."""

    def __init__(self, words: list[str]) -> None:
        self.arguments = words


def serve(folder: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "socket"))
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watchers
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in readable:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            watch(connection)
        connection.close()


def watch(connection: socket.socket) -> None:
    """Ends in the script's process by `Script`, and in its own not at all."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, fds, _, _ = socket.recv_fds(connection, 4, FDS)
    text = bytearray()
    while len(text) < int.from_bytes(head, "big"):
        text += connection.recv(1 << 20)
    folder, count, *words = os.fsdecode(bytes(text)).split("\0")
    script = os.fork()
    if script == 0:
        connection.close()
        os.setsid()
        for fd, standard in zip(fds, range(FDS), strict=True):
            os.dup2(fd, standard)
            os.close(fd)
        os.chdir(folder)
        arguments, variables = words[: int(count)], words[int(count) :]
        os.environ.clear()
        os.environ.update(variable.split("=", 1) for variable in variables)
        raise Script(arguments)
    for fd in [*fds, *range(FDS)]:
        os.close(fd)
    ended = os.pidfd_open(script)
    while True:
        readable, _, _ = select.select([connection, ended], [], [])
        if ended in readable:
            _, status = os.waitpid(script, 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(script, signal.SIGKILL)  # as whoever starts ranks does
            connection.sendall(status.to_bytes(4, "big"))
            os._exit(0)
        number = connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(script, number[0] if number else signal.SIGKILL)
        if not number:
            os._exit(0)


def show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """A traceback without this file's frame."""
    traceback.print_exception(kind, error, frames.tb_next if frames else None)


def prepare(script: Path) -> types.ModuleType:
    """Prepares the interpreter as before a script's first line."""
    sys.excepthook = show
    # A shell ignores it in background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    sys.path[0] = str(script.resolve().parent)
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    sys.modules["__main__"] = module
    return module


def program(words: list[str]) -> tuple[Path, bytes]:
    """The script of an interpreter's arguments, and what is run: it, or what `-m` names."""
    if words[:2] == ["-m", "mpi4py"]:
        del words[0]
        return Path(words[1]), b"from mpi4py.run import main; main()"
    return Path(words[0]), Path(words[0]).read_bytes()


for name in sys.argv[2:]:
    importlib.import_module(name)
try:
    serve(Path(sys.argv[1]))
    os._exit(0)  # at once: to take apart what was imported lasts seconds
except Script as asked:
    sys.argv = asked.arguments

# Outside of any handler, so that the script's end is the interpreter's own.
path, source = program(sys.argv)
exec(compile(source, path, "exec", dont_inherit=True), prepare(path).__dict__)
