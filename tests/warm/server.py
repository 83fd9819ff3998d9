# SPDX-License-Identifier: Apache-2.0
"""Runs scripts for `python3` beside it, in forks of a process that has imported torch, and modules:

    python server.py FOLDER [MODULE...]

Listens at FOLDER/socket until its standard input ends. Each connection has a process that watches
over the script's: it passes signals on, kills the script's process group when the connection ends,
and tells how the script ended. A script runs in the namespaces of whoever started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
import types
from pathlib import Path
from types import TracebackType

import torch._dynamo  # takes the seconds; optimizers import it
import torch.distributed

FDS = 3
NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")  # the last one last: it changes what /proc shows


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


def join(process: int) -> None:
    """Enters the namespaces of `process` that are not this process's; of PIDs, its children do."""
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in NAMESPACES:
        here, there = (f"/proc/{one}/ns/{namespace}" for one in ("self", process))
        if os.readlink(here) == os.readlink(there):
            continue
        with open(there, "rb") as opened:
            if libc.setns(opened.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns: {namespace} of process {process}")


def watch(connection: socket.socket) -> None:
    """Ends in the script's process by `Script`, and in its own not at all."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, fds, _, _ = socket.recv_fds(connection, 4, FDS)
    text = bytearray()
    while len(text) < int.from_bytes(head, "big"):
        text += connection.recv(1 << 20)
    folder, count, *words = os.fsdecode(bytes(text)).split("\0")
    caller = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    join(struct.unpack("3i", caller)[0])
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


MODULE = b"import runpy, sys; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


def program(words: list[str]) -> tuple[Path, bytes]:
    """The script of an interpreter's arguments, and what is run: it, or the module of `-m`."""
    if words[0] == "-m":
        del words[0]
        return Path(words[0]), MODULE
    return Path(words[0]), Path(words[0]).read_bytes()


for name in sys.argv[2:]:
    importlib.import_module(name)
try:
    serve(Path(sys.argv[1]))
    os._exit(0)  # at once: to take apart what was imported lasts seconds
except Script as asked:
    sys.argv, sys.executable = asked.arguments, str(Path(sys.argv[1]) / "python3")

# Outside of any handler, so that the script's end is the interpreter's own.
path, source = program(sys.argv)
exec(compile(source, path, "exec", dont_inherit=True), prepare(path).__dict__)
