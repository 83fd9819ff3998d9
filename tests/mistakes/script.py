# SPDX-License-Identifier: Apache-2.0
"""The script of a job that makes a mistake: --mistake MODULE:NAME."""

import argparse
import importlib

from tests.mistakes.case import MISTAKES

parser = argparse.ArgumentParser()
parser.add_argument("--mistake")
parser.add_argument("--setting")
arguments = parser.parse_known_args()[0]
module, _, name = arguments.mistake.partition(":")

if arguments.setting == "plain":
    importlib.import_module(module)
    print("the mistake follows", flush=True)
    MISTAKES[name].script()
else:
    import smdistributed.modelparallel.torch as smp

    importlib.import_module(module)
    print("the mistake follows", flush=True)
    if MISTAKES[name].before_init:
        MISTAKES[name].script()
        smp.init()
        smp.barrier()
    else:
        smp.init()
        MISTAKES[name].script()
