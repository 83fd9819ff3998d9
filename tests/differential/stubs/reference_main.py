# SPDX-License-Identifier: Apache-2.0
"""The reference launcher without what would reach beyond one test: it starts no sshd on port 22,
logs in nowhere, writes no /etc/environment and does not sleep. What it computes is untouched."""

import json
import os
import sys
import time

from sagemaker_training import mpi, smdataparallel, trainer


def record_worker_environment():
    path = os.path.join(os.environ["SMP_STUB_RECORDS"], "worker.json")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        entry = {"program": "worker", "argv": [], "directory": os.getcwd()}
        json.dump(entry | {"environment": dict(os.environ)}, file)


for module in (mpi, smdataparallel):
    module._start_sshd_daemon = lambda: None
    module._can_connect = lambda *_: True
    module._write_status_file = lambda *_: True
mpi._write_env_vars_to_file = record_worker_environment
mpi._wait_orted_process_to_finish = lambda: ([], [])
mpi.WorkerRunner._wait_for_status_file = lambda *_: True
time.sleep = lambda _: None

if __name__ == "__main__":
    sys.exit(trainer.train())
