#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compiler and linker launcher: runs the command and notes what it took.

usage: compile_clock.py FILE COMMAND...

Appends "SECONDS<tab>BYTES<tab>OUTPUT" to FILE: processor time, the most memory of one process, and
what follows the command's -o.
"""

from __future__ import annotations

import resource
import subprocess
import sys


def main() -> int:
    record, *command = sys.argv[1:]
    code = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else command[-1]
    with open(record, "a", encoding="utf-8") as file:
        file.write(f"{used.ru_utime + used.ru_stime:.3f}\t{used.ru_maxrss << 10}\t{output}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
