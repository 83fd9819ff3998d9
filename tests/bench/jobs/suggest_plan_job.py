# SPDX-License-Identifier: Apache-2.0
"""The planner's answer on all compositions of one model of suggest_job.py, and the time that the
search takes. usage: suggest_plan_job.py MODEL BATCH MACHINES"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from smdistributed.modelparallel.torch._planning.machines import measured_machines
from smdistributed.modelparallel.torch._planning.suggestions import ask
from smdistributed.modelparallel.torch._planning.watched_script import watch_script

EVERY = 100_000


def main() -> None:
    name, batch, machines = sys.argv[1:]
    script = Path(__file__).with_name("suggest_job.py")
    seen = watch_script(script, [name, batch, "1"])
    begin = time.perf_counter()
    answer = ask(seen.profile, measured_machines(Path(machines), None), fixed={}, count=EVERY)
    answer["seconds"] = time.perf_counter() - begin
    print("RESULT " + json.dumps(answer))


if __name__ == "__main__":
    main()
