# SPDX-License-Identifier: Apache-2.0
"""The exit code that a process knows of in its exit handlers, by how its script ended."""

import json
import subprocess
import sys

ENDS = {
    "": 0,
    "sys.exit()": 0,
    "sys.exit('a text')": 1,
    "sys.exit(True)": 1,
    "1 / 0": 1,
    "caught()": 0,
    "caught(); sys.exit(7)": 7,
    "caught(); 1 / 0": 1,
    "in_a_thread()": 0,
    "passed_on()": 3,
    "inside_another()": 6,
    "try: sys.exit(8)\nexcept SystemExit: sys.exit(0)": 0,
    "try: sys.exit(9)\nexcept SystemExit: raise SystemExit(0)": 0,
    "kept()": 0,
    "kept(raises=True)": 10,
    "atexit.register(gc.collect); asyncio.run(in_a_task())": 11,
    "_thread.start_new_thread(sys.exit, (12,)); time.sleep(0.2)": 0,
    "changed()": 13,
}

# Each end is that of a process of its own, forked where the interpreter's own call is the only one.
SCRIPT = """
import _thread, asyncio, atexit, gc, json, os, sys, threading, time
from smdistributed.modelparallel.torch._ranks import process_exit

def caught():
    try:
        sys.exit(2)
    except SystemExit:
        pass

def passed_on():
    try:
        sys.exit(3)
    except SystemExit as error:
        print("ends with", error.code)
        raise
    finally:
        print("in it", process_exit.failure_code())

def in_a_thread():
    thread = threading.Thread(target=sys.exit, args=(4,))
    thread.start()
    thread.join()

def inside_another():
    try:
        sys.exit(5)
    finally:
        sys.exit(6)

def kept(raises=False):
    global result
    try:
        sys.exit(10)
    except SystemExit as error:
        result = error
        if raises:
            raise

async def in_a_task():
    sys.exit(11)

def changed():
    try:
        sys.exit(1)
    except SystemExit as error:
        error.code = 13
        raise

def tell():
    print("code", process_exit.failure_code(), flush=True)

process_exit.watch(lambda: True)
for end in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        atexit.register(tell)
        exec(end)
        break
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_exit_handlers_know_how_the_script_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(ENDS))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [int(line[5:]) for line in lines if line.startswith("ended")] == list(ENDS.values())
    assert [int(line[5:]) for line in lines if line.startswith("code")] == list(ENDS.values())
    assert "in it 3" in lines
