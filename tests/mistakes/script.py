# SPDX-License-Identifier: Apache-2.0
"""The script of a job that makes a mistake: --mistake MODULE:NAME."""

import argparse
import importlib

from tests.mistakes.case import BEGIN, MISTAKES

parser = argparse.ArgumentParser()
parser.add_argument("--mistake")
parser.add_argument("--setting")
arguments = parser.parse_known_args()[0]
module, _, name = arguments.mistake.partition(":")

importlib.import_module(module)
mistake = MISTAKES[name]
print(BEGIN, flush=True)
if arguments.setting == "plain":
    mistake.script()
else:
    import smdistributed.modelparallel.torch as smp

    if mistake.before_init:
        mistake.script()
        smp.init()
        smp.barrier()
    else:
        smp.init()
        mistake.script()
