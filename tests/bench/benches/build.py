# SPDX-License-Identifier: Apache-2.0
"""Cost of building in processor time: from nothing, with a full compiler cache, after edits."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark import ROOT, Result
from source_copy import copy_source, edit

BUILD_SECONDS, TESTS_SECONDS, EDIT_SECONDS = 600, 1200, 40
UNIT_GB, CLONE_SECONDS, CLONE_MISSES = 1.2, 60, 0.05
GOAL = (
    f"ci/build in {BUILD_SECONDS} s of processor time with an empty compiler cache, "
    f"{TESTS_SECONDS} s with all tests; a change of one source rebuilt and installed in "
    f"{EDIT_SECONDS} s on average over all sources; at most {UNIT_GB} GB for one unit; a second "
    f"clone in {CLONE_SECONDS} s, with at most {CLONE_MISSES:.0%} of its objects compiled"
)
FOLDER = ROOT / "build" / "bench" / "build"
SOURCE, TREE, CLOCK = FOLDER / "source", FOLDER / "source" / "build" / "tree", FOLDER / "clock"
CLONE = FOLDER / "clone"
# As CMakeLists.txt sets them; here the launcher is a clock around ccache.
CCACHE = {
    "CCACHE_DIR": str(FOLDER / "ccache"),
    "CCACHE_SLOPPINESS": "pch_defines,locale,time_macros,include_file_mtime,include_file_ctime",
    "CCACHE_NOHASHDIR": "1",
    "CCACHE_IGNOREOPTIONS": "-ffile-prefix-map=* -Xcompiler=-ffile-prefix-map=*",
    "CCACHE_BASEDIR": str(SOURCE),
}
INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)


@dataclass
class Cost:
    processor: float  # [s] of all processes
    elapsed: float  # [s]

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.processor + other.processor, self.elapsed + other.elapsed)

    def row(self, what: str) -> tuple[str, ...]:
        return (what, f"{self.processor:.0f}", f"{self.elapsed:.0f}")


def measured(*command: str | Path, folder: Path = SOURCE) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | CCACHE | {"CCACHE_BASEDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"ci/bench: {command[0]} failed:\n{done.stdout[-3000:]}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(used, time.monotonic() - start)


def configure() -> Cost:
    shutil.rmtree(TREE, ignore_errors=True)
    CLOCK.unlink(missing_ok=True)
    clock = f"{ROOT / 'tests/bench/jobs/compile_clock.py'};{CLOCK}"
    options = {
        "SMP_PYTHON": ROOT / ".venv/bin/python",
        "SMP_CCACHE": "OFF",
        "CMAKE_CXX_COMPILER_LAUNCHER": f"{clock};ccache",
        "CMAKE_CUDA_COMPILER_LAUNCHER": f"{clock};ccache",
        "CMAKE_CXX_LINKER_LAUNCHER": clock,
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
    }
    words = [f"-D{name}={value}" for name, value in options.items()]
    return measured("cmake", "--preset", "release", "-B", TREE, *words)


def build(*targets: str) -> Cost:
    return measured("cmake", "--build", TREE, "--target", *(targets or ("all",)))


def install() -> Cost:
    total = Cost(0, 0)
    for component in ("launcher", "python"):
        prefix = FOLDER / "installed"
        done = measured("cmake", "--install", TREE, "--component", component, "--prefix", prefix)
        total += done
    return total


def clocked() -> tuple[dict[str, float], float]:
    """Processor time by what was made, relative to TREE; the most memory of one process [GB]."""
    lines = [line.split("\t") for line in CLOCK.read_text().splitlines()]
    return {output: float(seconds) for seconds, _, output in lines}, max(
        int(size) / 1e9 for _, size, _ in lines
    )


def second_clone() -> tuple[Cost, float]:
    """Cost of a build elsewhere after this one, and the share of its objects that were compiled."""
    copy_source(CLONE)
    statistics_of_cache("--zero-stats")
    tree = CLONE / "build" / "tree"
    python = f"-DSMP_PYTHON={ROOT / '.venv/bin/python'}"
    cost = measured("cmake", "--preset", "release", "-B", tree, python, folder=CLONE)
    cost += measured("cmake", "--build", tree, folder=CLONE)
    counted = dict(line.split("\t") for line in statistics_of_cache("--print-stats").splitlines())
    found = int(counted["direct_cache_hit"]) + int(counted["preprocessed_cache_hit"])
    compiled = int(counted["cache_miss"])
    return cost, compiled / (compiled + found)


def statistics_of_cache(option: str) -> str:
    done = subprocess.run(
        ["ccache", option], env=os.environ | CCACHE, capture_output=True, text=True, check=True
    )
    return done.stdout


def units() -> dict[str, list[str]]:
    """The sources in each object file of the product, relative to SOURCE."""
    result = {}
    for entry in json.loads((TREE / "compile_commands.json").read_text()):
        file = Path(entry["file"])
        output = entry.get("output") or re.search(r" -o (\S+)", entry["command"])[1]
        names = INCLUDED.findall(file.read_text()) if "Unity" in file.parts else [str(file)]
        sources = [os.path.relpath(SOURCE / name, SOURCE) for name in names]
        if not any(source.startswith("tests/") for source in sources):
            result[os.path.relpath(TREE / output, TREE)] = sources
    return result


def after_an_edit(source: str) -> float:
    file = SOURCE / source
    text = file.read_text()
    edit(file)
    seconds = build().processor + install().processor
    file.write_text(text)
    build()  # or the next one would pay for it, as for what is installed
    install()
    return seconds


def run() -> list[Result]:
    shutil.rmtree(FOLDER, ignore_errors=True)
    copy_source(SOURCE)
    compiled = configure() + build()
    installed = install()
    cold = compiled + installed
    costs, memory = clocked()
    objects = units()
    clone, misses = second_clone()
    everything = cold + build("tests")

    # All programs and modules are counted as linked again: an upper bound for every source.
    links = sum(seconds for output, seconds in costs.items() if not output.endswith(".o"))
    nothing = build()
    fixed = links + nothing.processor + installed.processor
    edits = {source: costs[unit] + fixed for unit, names in objects.items() for source in names}
    mean = statistics.fmean(edits.values())
    ordered = sorted(edits, key=lambda source: edits[source])
    tried = [ordered[len(ordered) * part // 10] for part in (3, 6, 9)]
    real = {source: after_an_edit(source) for source in tried}

    warm = configure() + build("all", "tests")

    rows = [("", "processor, s", "elapsed, s")]
    rows += [cold.row("ci/build, empty cache"), everything.row("with tests, empty cache")]
    rows += [warm.row("with tests, full cache")]
    rows += [clone.row(f"a second clone, {misses:.1%} of it compiled")]
    rows += [("memory of one unit, at most, GB", f"{memory:.2f}", "")]
    rows.append((f"one of {len(edits)} sources, mean", f"{mean:.1f}", ""))
    rows += [(f"  {source}, really", f"{seconds:.1f}", "") for source, seconds in real.items()]
    rows.append(("the ten most expensive units, and the sources in each", "", ""))
    for number, unit in enumerate(sorted(objects, key=lambda unit: -costs[unit])[:10], start=1):
        rows.append((f"  {number}: {len(objects[unit])} sources", f"{costs[unit]:.1f}", ""))
        rows += [(f"    {source}", "", "") for source in objects[unit]]
    return [
        Result("build", cold.processor, BUILD_SECONDS, 1, GOAL, rows),
        Result("build with tests", everything.processor, TESTS_SECONDS, 1, GOAL),
        Result("build after an edit", mean, EDIT_SECONDS, 1, GOAL),
        Result("build memory", memory, UNIT_GB, 1, GOAL),
        Result("build second clone", clone.elapsed, CLONE_SECONDS, 1, GOAL),
        Result("build second clone misses", misses, CLONE_MISSES, 1, GOAL),
    ]
