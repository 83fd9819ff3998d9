# SPDX-License-Identifier: Apache-2.0
"""ci/gpu's stages: limits hold, every result is written at once, and nothing passes in silence."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gpu_report as report
import gpu_run as run
import pytest
import smdistributed


def outcome(tmp_path: Path, code: str, seconds: int = 20) -> Any:
    """Outcome of a stage that is this Python code; sys.argv[1] is the file that it is to write."""
    stage = run.Stage("trial", seconds, ("trial.py",), "nothing")
    with (tmp_path / "log.txt").open("ab") as log:
        return run.run_stage(stage, [sys.executable, "-c", code, run.FOUND], dict(os.environ), log)


def test_a_stage_tells_what_it_found(tmp_path: Path) -> None:
    result = outcome(tmp_path, "import sys; open(sys.argv[1], 'w').write('{\"rate\": 3}')")

    assert (result.state, result.found) == ("passed", {"rate": 3})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit('no such kernel')", "no such kernel"),
        ("pass", "it ended well and reported nothing"),
    ],
)
def test_a_stage_that_fails_or_finds_nothing_has_failed(
    tmp_path: Path, code: str, reason: str
) -> None:
    result = outcome(tmp_path, code)

    assert result.state == "failed"
    assert reason in result.reason


def test_a_stage_ends_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    """The findings until then stay, even where a process does not listen."""
    code = (
        "import os, signal, sys, time\n"
        "open(sys.argv[1], 'w').write('{\"so far\": 1}')\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"    open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    begin = time.monotonic()

    result = outcome(tmp_path, code, seconds=3)

    assert (result.state, result.found) == ("out of time", {"so far": 1})
    assert time.monotonic() - begin < 60
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"commit": "abc"}))
    return folder


def test_what_no_longer_fits_is_left_out_and_said(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = (run.Stage("long", 500, ("x.py",), ""), run.Stage("short", 1, ("y.py",), ""))
    monkeypatch.setattr(run, "TABLE", stages)
    ran = []

    def instead(stage: Any, *_rest: Any) -> Any:
        ran.append(stage.name)
        return run.Result(stage.name, "passed", found={"passed": 1})

    monkeypatch.setattr(run, "run_stage", instead)
    monkeypatch.setattr(run, "name_of_gpu", lambda: "H200")

    code = run.remote([str(bundle), str(tmp_path / "out"), "100"])

    lines = [json.loads(x) for x in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["state"]) for line in lines] == [
        ("long", "no time left"),
        ("short", "passed"),
    ]
    assert ran == ["short"]
    assert code == 1
    assert {line["commit"] for line in lines} == {"abc"}


def test_without_a_gpu_nothing_is_taken_for_a_result(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a folder without nvidia-smi

    with pytest.raises(SystemExit, match="shows no GPU"):
        run.remote([str(bundle), str(tmp_path / "out"), "100"])


@pytest.mark.parametrize("rehearse", [False, True])
def test_only_a_rehearsal_may_do_without_a_gpu(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, rehearse: bool
) -> None:
    """The variable of the shell that starts ``ci/gpu remote`` makes no difference."""
    monkeypatch.setenv("SMP_GPU_REHEARSAL", "1")

    environment = run.environment_for(bundle, rehearse=rehearse)

    assert environment.get("SMP_GPU_REHEARSAL") == ("1" if rehearse else None)


@pytest.mark.parametrize("name", ["machine", "ceilings", "kernels", "training", "two_hosts"])
def test_a_stage_whose_torch_sees_no_gpu_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A stage would run on the CPU, and pass, where the driver shows a GPU and torch does not."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("SMP_GPU_REHEARSAL", raising=False)
    stage = next(one for one in run.TABLE if one.name == name)
    command = run.command_of(stage, tmp_path, "cpu")

    with (tmp_path / "log.txt").open("ab") as log:
        result = run.run_stage(stage, command, dict(os.environ), log)

    assert result.state == "failed"
    assert "sees no GPU" in result.reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("machine", "library"),
        ("ceilings", "launch_seconds"),
        ("kernels", "rows"),
        ("training", "rows"),
        ("two_hosts", "pipeline by the host"),
    ],
)
def test_a_stage_can_be_rehearsed(tmp_path: Path, bundle: Path, name: str, found: str) -> None:
    (bundle / "site").symlink_to(Path(smdistributed.__file__).parents[1])
    stage = next(one for one in run.TABLE if one.name == name)
    stage = dataclasses.replace(stage, seconds=run.REHEARSAL_FACTOR * stage.seconds)
    environment = run.environment_for(bundle, rehearse=True)

    with (tmp_path / "log.txt").open("ab") as log:
        command = run.command_of(stage, bundle, "cuda")
        result = run.run_stage(stage, command, environment, log)

    assert result.state == "passed", (tmp_path / "log.txt").read_text()
    assert result.found[found]


def test_a_stage_of_another_name_is_refused(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(SystemExit, match="no stage is named kernel;"):
        run.remote([str(bundle), str(tmp_path / "out"), "100", "--only", "kernel"])


def test_reports_of_test_programs_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(
        '<testsuites><testsuite><testcase classname="a.b" name="good"/>'
        '<testcase classname="a.b" name="bad"><failure/></testcase>'
        '<testcase classname="a.b" name="idle"><skipped/></testcase>'
        '<testcase classname="c" name="gone" result="skipped"/></testsuite></testsuites>'
    )

    assert run.read_found(file) == {
        "passed": 1,
        "failed": ["b.bad"],
        "skipped": ["b.idle", "c.gone"],
    }


def test_only_results_of_a_commit_on_a_gpu_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.jsonl"
    monkeypatch.setattr(report, "RECORD", record)
    monkeypatch.setattr(report, "write_page", lambda: None)
    results = [
        {"stage": stage, "commit": commit, "device": device, "reason": "in /root/site/torch/a.py"}
        for stage, commit, device in (
            ("a", "abc", "H200"),
            ("b", "abc+", "H200"),
            ("c", "abc", "CPU, rehearsed"),
        )
    ]

    report.record(results)
    report.record(results)  # a folder that another run added to

    assert [json.loads(line)["stage"] for line in record.read_text().splitlines()] == ["a"]
    assert "in a.py" in record.read_text(), "no folder of a machine is kept"


def test_the_page_has_what_is_recorded() -> None:
    _, _, rest = report.PAGE.read_text().partition(report.BEGIN)
    shown, _, _ = rest.partition(report.END)

    assert shown.strip() == report.page(report.read_record()).strip(), (
        "gpu_report.write_page(), of tests/gpu/lab, writes the tables anew"
    )


def measured(stage: str, found: dict[str, Any], state: str = "passed") -> dict[str, Any]:
    return {"stage": stage, "state": state, "commit": "abc", "device": "H200",
            "date": "2026-11-30", "found": found}  # fmt: skip


def test_tables_have_the_peer_beside_ours() -> None:
    row = {"case": "bf16 with masters", "against": "masters by hand", "seconds": 0.101,
           "peer_seconds": 0.1, "ratio": 1.01, "goal": 1.02, "flops": 3e14, "peer_flops": 3.5e14,
           "waits": 1, "peer_waits": 0}  # fmt: skip
    kernel = {"kernel": "squares", "bytes_a_second": 4e12, "torch_bytes_a_second": 3e12,
              "share_of_copy": 0.95, "times_torch": 0.75, "passes": True}  # fmt: skip
    recorded = [
        measured("ceilings", {
            "copy_bytes_a_second": 4.2e12, "bf16_flops": 7e14, "launch_seconds": 4e-6,
            "pinned_bytes_a_second": {"to_gpu": 5e10, "from_gpu": 5e10},
        }),
        measured("training", {"rows": [row]}),
        measured("kernels", {"rows": [kernel]}),
        measured("two_hosts", {"c10d by NCCL": {"all-reduce of 1024 bytes": 2e-5}}),
        measured("two_hosts", {"c10d by NCCL": {"failed": "exit codes"}}, "failed"),
    ]  # fmt: skip

    text = report.page(recorded)

    assert (
        "| bf16 with masters | 101.0 ms | masters by hand | 100.0 ms | 1.010 | ≤ 1.02 "
        "| 43%, 50% | 1, 0 |" in text
    )
    assert "| squares | 4 TB/s | 3 TB/s | 95% | 0.75 | yes |" in text
    assert "| c10d by NCCL | all-reduce of 1024 bytes | 20 µs |" in text
    assert "**Kernels** (H200, commit abc, 2026-11-30)" in text
