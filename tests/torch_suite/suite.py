# SPDX-License-Identifier: Apache-2.0
"""The suite by which PyTorch judges its own backends, over one of them:

    python suite.py BACKEND RESULTS.json [--start METHOD] [--ranks N] [--cuda-names] [TEST...]

The suite comes with the torch wheel, so a new version brings its tests by itself. RESULTS gets
{test: [outcome, text]}; outcomes are passed, failed and skipped. METHOD is multiprocessing's: fork,
spawn, or forkserver, where ranks have nothing of this process either, but torch is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

arguments = argparse.ArgumentParser()
arguments.add_argument("backend")
arguments.add_argument("results", type=Path)
arguments.add_argument("--start", choices=("fork", "spawn", "forkserver"), default="fork")
arguments.add_argument("--ranks", default="4")
arguments.add_argument("--cuda-names", action="store_true", help="see cuda_names.py")
arguments.add_argument("tests", nargs="*")

# Ranks that are not forked import this module, too: the variables are what they have of the
# arguments.
if __name__ == "__main__":
    given = arguments.parse_args()
    os.environ |= {"BACKEND": given.backend, "WORLD_SIZE": given.ranks, "SUITE_START": given.start}
    if given.cuda_names:
        os.environ["SUITE_CUDA_NAMES"] = "1"

import cuda_names  # noqa: E402
import torch  # noqa: E402

BACKEND = os.environ["BACKEND"]
if BACKEND == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

# The suite decides at its import which calls a backend is asked for: all of gloo's.
os.environ["BACKEND"] = "gloo"
CUDA_NAMES = "SUITE_CUDA_NAMES" in os.environ
with cuda_names.seen() if CUDA_NAMES else contextlib.nullcontext():
    from torch.testing._internal.distributed import distributed_test

if CUDA_NAMES:
    cuda_names.install(int(os.environ["WORLD_SIZE"]))
os.environ["BACKEND"] = distributed_test.BACKEND = BACKEND
if BACKEND == "smddp":
    distributed_test.PROFILING_SUPPORTED_BACKENDS.append("smddp")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("smddp")


def run_in(environment: dict[str, str], run: Callable[..., None], *words: Any, **more: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    run(*words, **more)


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self) -> None:
        super().setUp()
        context = torch.multiprocessing.get_context(os.environ["SUITE_START"])

        def process(target: Callable[..., None], args: tuple[Any, ...], **more: Any) -> Any:
            # A server's is that of its start.
            return context.Process(target=run_in, args=(dict(os.environ), target, *args), **more)

        self._start_processes(process)


class Results(unittest.TestResult):
    """Outcomes by test; each is said on stderr as soon as it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, tuple[str, str]] = {}

    def note(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        name = test.id().rpartition(".")[2]
        self.outcomes[name] = (outcome, text)
        print(f"{BACKEND}: {outcome} {name}", file=sys.stderr, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        self.note(test, "failed", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    addError = addFailure  # noqa: N815

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.note(test, "skipped", reason)


def main() -> None:
    torch.multiprocessing.set_forkserver_preload(["torch", "torch._dynamo", "torch.distributed"])
    names = given.tests or unittest.defaultTestLoader.getTestCaseNames(Suite)
    results = Results()
    unittest.TestSuite(Suite(name) for name in names).run(results)
    given.results.write_text(json.dumps(results.outcomes, indent=1))


if __name__ == "__main__":
    main()
