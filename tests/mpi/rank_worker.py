# SPDX-License-Identifier: Apache-2.0
"""One rank of a RankPool: does jobs until the pool closes its end."""

import importlib
import os
import pickle
import sys
import traceback
from multiprocessing.connection import Client
from pathlib import Path

import smdistributed.modelparallel.torch as smp

sys.path.insert(0, str(Path(__file__).parent / "jobs"))


def main() -> None:
    pool = Client(sys.argv[1], "AF_UNIX")
    pool.send(int(os.environ["OMPI_COMM_WORLD_RANK"]))
    while True:
        try:
            job, config, args, kwargs = pool.recv()
        except EOFError:
            os._exit(0)  # all is done; ending an interpreter with torch takes seconds
        result, error = None, ""
        try:
            smp.init(config)
            module, function = job.split(":")
            result = getattr(importlib.import_module(module), function)(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # torch's CheckpointException is no Exception
            error = traceback.format_exc()
        smp.shutdown()
        # Not send(): it would share tensors by file descriptor, which needs this process to stay.
        pool.send_bytes(pickle.dumps((result, error)))


if __name__ == "__main__":
    main()
