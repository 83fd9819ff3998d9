#!/usr/bin/python3 -SE
# SPDX-License-Identifier: Apache-2.0
"""Stands in for the user's script and for every program that a launcher starts: writes down what
it was called with, then does what SMP_SCRIPT says. Runs under any Python 3, without packages."""

import itertools
import json
import os
import signal
import sys
import time

COMMAND_PREFIXES = ("mpirun", "smddprun", "smddpmprun", "neuron_parallel_compile", "torchrun")


def words_of(path):
    with open(path, "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def program_name():
    """`mpirun` for a stub of that name, `script` for the user's code."""
    name = os.path.basename(sys.argv[0])
    return name if name in (*COMMAND_PREFIXES, "ssh") else "script"


def record(name, argv):
    entry = {
        "program": name,
        "argv": argv,
        "environment": dict(word.partition("=")[::2] for word in words_of("/proc/self/environ")),
        "directory": os.getcwd(),
    }
    path = os.path.join(os.environ["SMP_STUB_RECORDS"], f"{time.monotonic_ns():020}-{os.getpid()}")
    with open(path + ".json", "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(entry, file)


def start_the_command(argv):
    """Starts the command as mpirun and its wrappers do at last: the first word with a path."""
    environment = dict(os.environ)
    for option, value in itertools.pairwise(argv):
        if option == "-x" and "=" in value:
            name, _, text = value.partition("=")
            environment[name] = text
    for index, word in enumerate(argv[1:], start=1):
        if word in COMMAND_PREFIXES or (word.startswith("/") and argv[index - 1] != "--prefix"):
            os.execvpe(word, argv[index:], environment)


def behave(text):
    """SMP_SCRIPT: words such as `write-failure exit=3`."""
    print("user: to stdout", flush=True)
    print("user: to stderr", file=sys.stderr, flush=True)
    for word in text.split():
        action, _, value = word.partition("=")
        if action == "write-failure":
            with open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
                file.write("the user's own words")
        elif action == "kill":
            os.kill(os.getpid(), getattr(signal, "SIG" + value))
        elif action == "raise":
            raise ValueError(value)
        elif action.startswith("gloo"):
            # The reference listens only after a word such as RuntimeError.
            for line in (
                "RuntimeError: peer closed",
                "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
            ):
                print(line, file=sys.stderr, flush=True)
            if action == "gloo-abort":
                os.abort()
        elif action == "exit":
            sys.exit(int(value))


def main(name):
    stub = [name, *sys.argv[1:]]
    # The kernel's own record of a script: how it was started is part of the contract.
    record(name, words_of("/proc/self/cmdline") if name == "script" else stub)
    if name == "torchrun":
        sys.exit(3 if os.environ.get("SMP_SCRIPT") == "exit=3" else 0)
    if name in COMMAND_PREFIXES:
        start_the_command(stub)
    elif name == "script":
        behave(os.environ.get("SMP_SCRIPT", ""))
    elif name == "pip":
        sys.exit(int(os.environ.get("SMP_PIP_EXIT", "0")))


if __name__ == "__main__":
    main(program_name())
