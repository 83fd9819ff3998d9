# SPDX-License-Identifier: Apache-2.0
"""`ci/gpu remote`: stages, each in processes of its own with a limit, on a machine with a GPU."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[3]
STAGES = Path(__file__).with_name("stages")
FOUND = "{found}"
#: A rehearsal runs on two busy processors what is meant for sixteen and a GPU.
REHEARSAL_FACTOR = 4


#: Tests of tests/gpu that need none; that of the kernels' code needs a build, too, which is not
#: there.
NEEDS_NO_GPU = tuple(
    f"--ignore=tests/gpu/test_{name}.py"
    for name in ("bundle", "find_nvcc", "kernel_code", "skipping", "stages")
)


@dataclass(frozen=True)
class Stage:
    """`command` is a program of tests/gpu/lab/stages, a test program of the bundle, or "pytest"."""

    name: str
    seconds: int
    command: tuple[str, ...]
    shows: str


TABLE = (
    Stage("machine", 20, ("machine.py",), "what the machine is, and that the bundle loads there"),
    Stage("ceilings", 15, ("ceilings.py",), "copies, matrix products and launches at their best"),
    Stage("nccl", 45, ("bin/gpu_nccl_test",), "NCCL under our communicator and channel"),
    Stage(
        "tests",
        75,
        ("pytest", "tests/gpu", "-m", "not suspect and not shared_card", *NEEDS_NO_GPU),
        "kernels, offload, engine, smddp: the GPU against the CPU",
    ),
    Stage("programs", 60, ("bin/gpu_program_test",), "programs in C++: the GPU against the CPU"),
    Stage(
        "suspects", 110, ("pytest", "tests/gpu", "-m", "suspect"), "faults that only a GPU shows"
    ),
    Stage(
        "shared_card",
        110,
        ("pytest", "tests/gpu", "-m", "shared_card"),
        "jobs whose ranks share the GPU, against one process",
    ),
    Stage(
        "two_hosts", 60, ("two_hosts.py",), "NCCL between two ranks that take each other for far"
    ),
    Stage("kernels", 30, ("kernels.py",), "bandwidth of the kernels beside torch's"),
    Stage("training", 150, ("training.py",), "steps of GPT-2 medium beside a plain loop"),
)


@dataclass
class Result:
    """A line of results.jsonl."""

    stage: str
    state: str  # passed, failed, out of time, no time left
    seconds: float = 0
    limit: int = 0
    commit: str = ""
    device: str = ""
    reason: str = ""
    found: dict[str, Any] = field(default_factory=dict)


def list_stages(_words: list[str]) -> int:
    """Prints them."""
    for stage in TABLE:
        print(f"{stage.name:<12} {stage.seconds:>4} s  {stage.shows}")
    print(f"{'':<12} {sum(stage.seconds for stage in TABLE):>4} s")
    return 0


def remote(words: list[str]) -> int:
    """Runs the stages; 1 if one of them failed or found no time."""
    parser = argparse.ArgumentParser(prog="ci/gpu remote")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args(words)
    wanted = chosen(options.only)
    bundle, out = options.bundle.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((bundle / "manifest.json").read_text())
    device = "CPU, rehearsed" if options.rehearse else name_of_gpu()
    factor = REHEARSAL_FACTOR if options.rehearse else 1
    deadline = time.monotonic() + factor * options.seconds
    environment = environment_for(bundle, rehearse=options.rehearse)
    bad = 0
    with (out / "results.jsonl").open("a") as lines, (out / "log.txt").open("ab") as log:
        for one in wanted:
            stage = replace(one, seconds=factor * one.seconds)
            left = deadline - time.monotonic()
            if left < stage.seconds:
                reason = f"{left:.0f} s were left of the {stage.seconds} that it may take"
                result = Result(stage.name, "no time left", limit=stage.seconds, reason=reason)
            else:
                other = "cuda" if options.rehearse else "cpu"
                result = run_stage(stage, command_of(stage, bundle, other), environment, log)
            result.commit, result.device = manifest["commit"], device
            lines.write(json.dumps(asdict(result)) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
            bad += result.state != "passed"
            print(
                f"{stage.name:<12} {result.state} ({result.seconds:.0f} s of {stage.seconds} s)"
                + (f": {result.reason}" if result.reason else ""),
                flush=True,
            )
    return 1 if bad else 0


def chosen(only: str) -> list[Stage]:
    names = [name for name in only.split(",") if name]
    unknown = set(names) - {stage.name for stage in TABLE}
    if unknown:
        raise SystemExit(
            f"ci/gpu remote: no stage is named {', '.join(sorted(unknown))}; see ci/gpu stages"
        )
    return [stage for stage in TABLE if not names or stage.name in names]


def name_of_gpu() -> str:
    """As the driver names it. Raises SystemExit without one: nothing would show anything."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        names, reason = done.stdout.strip().splitlines(), done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        names, reason = [], str(error)
    if not names:
        raise SystemExit(
            "ci/gpu remote: this machine shows no GPU (nvidia-smi: "
            f"{reason or 'no name'}); to try the stages without one add --rehearse"
        )
    return names[0]


def environment_for(bundle: Path, *, rehearse: bool) -> dict[str, str]:
    """Environment of the stages' programs: the bundle's package first, torch's libraries, ours."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"ci/gpu remote: {sys.executable} has no torch; start ci/gpu by the one that has"
        )
    torch = Path(spec.submodule_search_locations[0])
    ours = [bundle / "lib", bundle / "site" / "smdistributed" / "lib"]
    libraries = [*ours, torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]
    environment = dict(os.environ)
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(bundle / "site"), str(ROOT)]),
        "LD_LIBRARY_PATH": os.pathsep.join(
            [*map(str, libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",  # the repository may be read-only
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "SMDDP_INTERFACE": "lo",
        "SMP_PROGRESS": "off",
    }
    # Only a rehearsal may do without a GPU: elsewhere what ran on the CPU would show nothing.
    environment.pop("SMP_GPU_REHEARSAL", None)
    if rehearse:
        environment |= {"SMP_GPU_REHEARSAL": "1", "CUDA_VISIBLE_DEVICES": ""}
    return environment


def run_stage(stage: Stage, command: list[str], environment: dict[str, str], log: Any) -> Result:
    """Runs its program, ends all its processes at the limit, and reads what it found."""
    result = Result(stage.name, "passed", limit=stage.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "found"
        command = [word.replace(FOUND, str(found)) for word in command]
        log.write(f"\n=== {stage.name}: {' '.join(command)}\n".encode())
        log.flush()
        begin, place = time.monotonic(), log.tell()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(stage.seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_session(process)
        result.seconds = round(time.monotonic() - begin, 2)
        log.seek(0, os.SEEK_END)
        try:
            result.found = read_found(found)
        except (ValueError, ElementTree.ParseError):  # it was ended while it wrote
            result.found = {}
        if code != 0:
            result.state = "out of time" if code is None else "failed"
            result.reason = last_words(Path(log.name), place)
        elif not result.found:
            result.state, result.reason = "failed", "it ended well and reported nothing"
    return result


def command_of(stage: Stage, bundle: Path, other: str) -> list[str]:
    """With FOUND where the file stands that it is to write. Of tests that take a device those for
    the ``other`` one are left out: they run elsewhere."""
    first, *rest = stage.command
    if first == "pytest":
        options = ["-q", "-rs", "--color=no", "-p", "no:cacheprovider", f"--junit-xml={FOUND}"]
        return [sys.executable, "-m", "pytest", *options, *rest, "-k", f"not {other}"]
    if first.startswith("bin/"):
        return [str(bundle / first), f"--gtest_output=xml:{FOUND}"]
    return [sys.executable, str(STAGES / first), FOUND, str(bundle), str(stage.seconds)]


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends what the stage started and left, which would take the GPU from the next one."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.2)  # for the group's others; what is left then is killed
    process.wait(10)


def read_found(path: Path) -> dict[str, Any]:
    """JSON of our programs; of a test runner the counts and the names of what failed."""
    if not path.exists():
        return {}
    text = path.read_text()
    if not text.lstrip().startswith("<"):
        return dict(json.loads(text))
    cases = list(ElementTree.fromstring(text).iter("testcase"))
    bad = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [
        case
        for case in cases
        if case.find("skipped") is not None or case.get("result") == "skipped"
    ]
    return {
        "passed": len(cases) - len(bad) - len(skipped),
        "failed": [name_of(case) for case in bad],
        "skipped": [name_of(case) for case in skipped],
    }


def name_of(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"


def last_words(log: Path, place: int) -> str:
    with log.open("rb") as file:
        file.seek(place)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " | ".join(line.strip() for line in lines[-4:])[-600:] or "no output"
