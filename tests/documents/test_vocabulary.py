# SPDX-License-Identifier: Apache-2.0
"""Words that engineers of distributed training would have to ask about do not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHERE = ("README.md", "docs", "smp_runtime", "entrypoint", "opt_ml_layout")

#: Words that stood here once, and the field's terms for them.
REPLACED = {
    r"batons?": "run token",
    r"stand-ins?|StandIn|stand_ins?": "remote tensor",
    r"body.?tables?|BodyTable": "payload dictionary",
    r"trails?|trails?_|trails?_\w+": "recorded order",
    r"linger\w*": "spin",
    r"stubs?": "definition",
    r"put.?off|PutOff": "deferred initialization",
    r"errands?": "helper process",
    r"knobs?": "option",
    r"let_go": "reshard",
    r"LiveUnits|live_units": "unsharded",
    r"fed.?batches|fed_alike": "input check",
    r"TensorMark|tensor_marks": "annotation",
    r"HostBoard|BoardShape|host_board": "shared segment",
    r"HostAlarm|host_alarm": "failure detector",
    r"goodbyes?": "FIN",
    r"StreamMark|stream_mark|mark_wait": "event",
    r"MeetingPlace|Meetings|meeting_place": "bootstrap, store barrier",
    r"member_cards|GpuCard": "peer information",
    r"share_walk|ShareWalk|SharePlan": "hierarchical schedule, chunk plan",
    r"HostExchange|HostWire": "intra-node, inter-node collectives",
    r"await_grant|kAnnounce": "credit, request to send",
    r"HostLink|PairLink|RingWire|C10dWire|NcclWire": "shared memory link, channel",
    r"WireHop|wire_bytes|_\w+_WIRE|(?:on|over) the wire": "encoded, sent, network",
    r"meet_gpus|_meet_\w+|comm\.meet": "await, connect",
    r"on_host|sparse_on_host|GpuRoute::kHost|with_host_type|host.memory": "memory of the CPU",
    r"leaves? word|word_of": "key of the store",
    r"enter_words|movements?|borders?": "region, redistribution",
    r"carriers?": "leader of a chunk",
    r"order_plan|step_replay|OrderPlan|StepReplay": "schedule simulation",
    r"sightings?|kMostLookedAt": "poll, confirmation",
    r"naming_group": "translate_c10d_errors",
    r"act_and_tell": "run_collectively",
    r"stays_|comes?_back|runs_ahead": "microbatch state, revisit, premature forward",
    r"take_drops|drops_": "released values; inputs, kept outputs",
    r"landings?|landings_of": "staging buffer",
    r"(?:check_)?built_alike": "replica check",
    r"(?:read_)?resliced\w*": "resharded",
    r"FlatParts|flat_checkpoints|(?:read|write)_flat_parts|is_flat|make_flat": "sharded",
    r"autograd(?:'s)? engine": "autograd; the engine is the pipeline's",
    r"torch[./]_session": "_ranks; a session is from init to shutdown",
    r"job_run|complain|introduce|side_actions?|run_side_action": "run, print_error, subcommand",
}
#: The word in its plain sense.
PLAIN = (
    "a stand-in for NCCL",  # in a test
)


def test_replaced_words_stay_away() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *WHERE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pattern = re.compile(rf"\b(?:{'|'.join(REPLACED)})\b", re.IGNORECASE)
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in {".h", ".cc", ".cu", ".py", ".pyi", ".md", ".txt"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line) and not any(plain in line for plain in PLAIN):
                found.append(f"{name}:{number}: {line.strip()}")

    assert not found, "\n".join(found)
