#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The test groups behind ci/test: what each runs and needs."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pairs
import tomllib
from test_run import (
    CMAKE,
    CTEST,
    LOGS,
    ROOT,
    Count,
    Failed,
    Group,
    Skipped,
    beside,
    closing_line,
    run_group,
    tail,
)

CPUS = len(os.sched_getaffinity(0))


def listed_tests(preset: str, *options: str) -> list[str]:
    """Names of the tests that ctest would run."""
    text = subprocess.run(
        [CTEST, "--preset", preset, "--show-only", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [line.split(": ", 1)[1] for line in text.splitlines() if line.startswith("  Test ")]


# Unit tests that a group with a sanitizer builds and runs: no other build of them is made then.
SANITIZED: set[str] = set()


def labelled(label: str, jobs: int = 1) -> Callable[[Group], Count]:
    """A group that is a ctest label of the release build."""

    def run(group: Group) -> Count:
        selection = ["--label-regex", f"^{label}$"]
        if SANITIZED:
            selection += ["--exclude-regex", f"^({'|'.join(sorted(SANITIZED))})$"]
        if not listed_tests("release", *selection):
            raise Skipped(f"no test is labelled {label}")
        return group.ctest("release", *selection, "--parallel", str(jobs))

    return run


LOOP = 0.0155  # [s] for a million rounds of a loop: a machine that takes longer is a slow one


@functools.cache
def thin() -> tuple[str, str]:
    """Of tests with many cases every fifth, and fewer on a slow machine, for continuous integration
    has a limit. All cases run in the groups grid and engines."""
    took = min(timeit.repeat("total += 1", "total = 0", number=1_000_000, repeat=5))
    return "--thin", str(round(5 * max(1.0, took / LOOP)))


VERSIONS_GB = 12
PACKAGE = {"PYTHONPATH": f"{ROOT}/build/release/python"}
LAUNCHER = {"SMP_TRAIN": f"{ROOT}/build/release/bin/train"}


def python(group: Group) -> Count:
    group.environment |= PACKAGE | {"OMP_NUM_THREADS": "1"}
    return group.pytest("tests/python")


def cpp(group: Group) -> Count:
    return group.pytest("tests/cpp")


def mpi(group: Group) -> Count:
    group.environment |= PACKAGE
    return group.pytest("tests/mpi", "-m", "not thorough and not long")


# The README and the tutorials, as their pages have them.
PAGES = ("tests/documents/test_readme.py", "tests/documents/test_tutorials.py")


def examples(group: Group) -> Count:
    return group.pytest(*PAGES, "-m", "not thorough and not long")


def thorough(group: Group) -> Count:
    group.run("ci/peers")  # without it the tests beside DeepSpeed are skipped, and say so
    count = group.pytest(*PAGES, "-m", "thorough")
    group.environment |= PACKAGE | LAUNCHER
    # By themselves: the conftest of tests/mpi marks files by name, and some bear the same.
    count += group.pytest("tests/gpu", "-m", "thorough")
    count += group.pytest("tests/launcher", "-m", "thorough")
    return count + group.pytest("tests/mpi", "-m", "thorough and not long", *thin())


def torch_suite(group: Group) -> Count:
    group.environment |= PACKAGE
    return group.pytest("tests/torch_suite", "-m", "not long", *thin())


DIFFERENTIAL = "tests/differential/differential_test.py"


def differential(group: Group) -> Count:
    return group.pytest(DIFFERENTIAL, *thin())


def one_test(*command: str) -> Callable[[Group], Count]:
    """A group that is one command, which passes or fails as a whole."""

    def run(group: Group) -> Count:
        return Count(passed=1) if group.run(*command) == 0 else Count(failed=1)

    return run


UNIT = ("--label-regex", "^unit$")


def sanitized(preset: str, pattern: str) -> Callable[[Group], Count]:
    """Unit tests whose name matches, built and run with a sanitizer; nothing of it links Torch."""

    def run(group: Group) -> Count:
        selection = (*UNIT, "--tests-regex", pattern)
        group.require(CMAKE, "--preset", preset)
        names = listed_tests(preset, *selection)
        group.require(CMAKE, "--build", "--preset", preset, "--target", *names)
        return group.ctest(preset, *selection, "--parallel", str(CPUS))

    return run


def use_engine(group: Group) -> None:
    """Makes the group's commands use a Docker engine, started where none runs."""
    code, found = group.announced("ci/engine", "start")
    if code != 0:
        reason = tail(group.log, 1)
        raise Skipped(f"no Docker engine runs or can be started: {reason}")
    name, _, value = found.strip().splitlines()[-1].partition("=")
    group.environment[name] = value


IMAGE = Lock()


def build_image(group: Group) -> None:
    """Or an older one would be tested. Two groups that need it may run beside each other."""
    use_engine(group)
    with IMAGE:
        group.require("ci/image", "--compiled")  # the group images builds as for a release


def image(group: Group) -> Count:
    build_image(group)
    return group.pytest("tests/image", "-m", "not cluster and not long")


def cluster(group: Group) -> Count:
    build_image(group)
    return group.pytest("tests/image", "-m", "cluster and not long")


def set_up(group: Group, option: str) -> None:
    command = ("ci/setup", option)
    if group.announced(*command)[0] != 0:
        raise Failed(" ".join(command))


def prepare_slurm(group: Group) -> None:
    if os.geteuid() != 0:
        raise Skipped("the nodes' namespaces and daemons need root")
    set_up(group, "--slurm")


def slurm(group: Group) -> Count:
    prepare_slurm(group)
    return group.pytest("tests/slurm", "-m", "not long", *thin())


def browser(group: Group) -> Count:
    set_up(group, "--browser")
    return group.pytest("tests/browser")


def pods(group: Group) -> Count:
    return group.pytest("tests/pods", "-m", "not long", *thin())


def engines(group: Group) -> Count:
    """All cases of slurm and pods."""
    prepare_slurm(group)
    return group.pytest("tests/slurm", "tests/pods")


def images(group: Group) -> Count:
    use_engine(group)
    return group.pytest("tests/image", "-m", "long")


def wheel(group: Group) -> Count:
    return group.pytest("tests/wheel")


def versions(group: Group) -> Count:
    free = shutil.disk_usage(ROOT).free // 10**9
    if free < VERSIONS_GB:
        raise Skipped(f"{free} GB are free, and environments of other versions take {VERSIONS_GB}")
    return group.pytest("tests/versions")


def all_versions(group: Group) -> Count:
    return group.pytest("tests/versions", "--pairs", "all")


def stranger(group: Group) -> Count:
    set_up(group, "--images")
    return group.pytest("tests/stranger")


def soak(group: Group) -> Count:
    matrix = "^launcher_signal_matrix$"
    many = ("--label-regex", "^(unit|launcher)$", "--exclude-regex", matrix)
    count = group.ctest("release", *many, "--repeat", "until-fail:20")
    for _ in range(20):
        count += mpi(group)
    # Every signal to every runner: not one process may be left in a hundred rounds.
    count += group.ctest("release", "--tests-regex", matrix, "--repeat", "until-fail:100")
    group.environment |= LAUNCHER | {"SMP_SOAK_MINUTES": os.environ.get("SMP_SOAK_MINUTES", "60")}
    return count + group.pytest("tests/launcher/soak_test.py", "-rP")


def grid(group: Group) -> Count:
    """Tests whose usual run takes a few of many cases: all of them."""
    group.run("ci/peers")
    group.environment |= PACKAGE | LAUNCHER | {"SMP_LONG_TESTS": "1", "SMP_FUZZ_ROUNDS": "10000"}
    pattern = "^(partition|pipeline_(fuzz|placement|shared_order))_test$"
    count = group.ctest("release", "--tests-regex", pattern)
    count += group.pytest(DIFFERENTIAL, "tests/python/test_checkpoints.py")
    count += group.pytest("tests/launcher", "-m", "long")
    return count + group.pytest("tests/mpi", "tests/torch_suite", *PAGES)


def rehearsal(group: Group) -> Count:
    """Runs `ci/gpu`, made for two machines, on this one and without a GPU; counts its stages."""
    try:
        python = pairs.interpreter("python3.12")
    except SystemExit as reason:
        raise Skipped(str(reason)) from None
    group.require("ci/gpu", "prepare", "--python", python)
    bundle, out = ROOT / "build" / "gpu", ROOT / "build" / "gpu-rehearsal"
    results = out / "results.jsonl"
    torch = json.loads((bundle / "manifest.json").read_text())["torch"].partition("+")[0]
    # All that a machine with a GPU is known to have.
    there = ROOT / "build" / "gpu-python"
    group.require(python, "-m", "venv", there)
    packages = (f"torch=={torch}", "numpy", "pybind11", "pytest")
    group.require(there / "bin" / "pip", "install", "--disable-pip-version-check", *packages)
    shutil.rmtree(out, ignore_errors=True)
    remote = ("ci/gpu", "remote", bundle, out, "600", "--rehearse")
    code = group.run(there / "bin" / "python", *remote)
    lines = results.read_text().splitlines() if results.exists() else []
    passed = sum(json.loads(line)["state"] == "passed" for line in lines)
    return Count(passed, len(lines) - passed or int(code != 0))


def mistakes(group: Group) -> Count:
    """Mistakes of users, as jobs; writes docs/mistakes.md."""
    group.environment |= PACKAGE
    return group.pytest("tests/mistakes")


def cold(group: Group) -> Count:
    """Each source by itself: what another file of its unit includes does not help it."""
    folder = ROOT / "build" / "cold"
    shutil.rmtree(folder, ignore_errors=True)
    group.environment["CCACHE_DISABLE"] = "1"
    options = ["-DSMP_DEVELOPER_MODE=ON", f"-DSMP_PYTHON={ROOT / '.venv/bin/python'}"]
    options += ["-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"]
    group.require(CMAKE, "-S", ROOT, "-B", folder, "-G", "Ninja", *options)
    group.require(CMAKE, "--build", folder, "--target", "all", "tests")
    shutil.rmtree(folder)
    return Count(passed=1)


def documents(group: Group) -> Count:
    group.require("ci/docs")
    group.environment |= LAUNCHER
    return group.pytest("tests/documents", *(f"--ignore={page}" for page in PAGES))


# Steps that no test can do without; they count only when they fail.


def setup(group: Group) -> Count:
    set_up(group, "--tests")
    return Count()


def build(group: Group) -> Count:
    group.require("ci/build", "--tests")
    return Count()


def build_once(group: Group) -> Count:
    """Without the unit tests that the group asan builds, too."""
    group.require("ci/build")
    group.require(CMAKE, "--preset", "asan")
    SANITIZED.update(listed_tests("asan", *UNIT))
    programs = [name for name in listed_tests("release", *UNIT) if name not in SANITIZED]
    targets = ("other_tests", *programs)
    group.require(CMAKE, "--build", "--preset", "release", "--target", *targets)
    return Count()


Groups = dict[str, Callable[[Group], Count]]
PREPARE: Groups = {"setup": setup, "build": build}
# Groups that show that this machine runs the product.
HERE = {
    "lint": one_test("ci/check"),
    "unit": labelled("unit", 2 * CPUS),  # some wait for limits to end
    "golden": labelled("golden", CPUS),
    "launcher": labelled("launcher", CPUS + 1),  # jobs wait for each other
    "mpi": mpi,
    "python": python,
    "examples": examples,
    "gpu": labelled("gpu"),
}
# First what leaves a processor idle at times, for those beside it.
ALL = HERE | {
    "image": image,
    "thorough": thorough,
    "documents": documents,
    "cpp": cpp,
    "differential": differential,
    "asan": sanitized("asan", "."),
    "tsan": sanitized("tsan", "^(pipeline|transport|collectives|session)"),
    "cluster": cluster,
    "torch_suite": torch_suite,
    "slurm": slurm,
    "pods": pods,
    "browser": browser,
    "wheel": wheel,
}
EVERY = ALL | {
    "engines": engines,
    "images": images,
    "grid": grid,
    "versions": versions,
    "all_versions": all_versions,
    "stranger": stranger,
    "rehearsal": rehearsal,
    "mistakes": mistakes,
    "fuzz": one_test("ci/fuzz"),
    "soak": soak,
    "cold": cold,
    "fresh": one_test("ci/fresh"),
    "figures": one_test("ci/figures", "--measure"),
}
SETS = {"": HERE, "--all": ALL, "--long": EVERY}
# Tests of several processes wait for two thirds of their time. So groups run in three rows beside
# each other; those that only calculate come last, at the lowest priority.
CALCULATE = ("asan", "tsan", "cpp", "documents", "differential")
ROWS = (
    ("mpi", "lint", "unit", "golden", "slurm", "pods", "cpp", "documents", "differential"),
    ("launcher", "python", "examples", "gpu", "thorough"),
    ("image", "cluster", "torch_suite", "browser", "wheel", "asan", "tsan"),
)


def chosen_groups(arguments: list[str]) -> Groups:
    names = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    unknown = [flag for flag in flags if flag not in SETS]
    unknown += [name for name in names if name not in EVERY]
    if unknown or len(flags) > 1:
        print(f"ci/test: cannot use {' '.join(unknown or flags)}; see --help", file=sys.stderr)
        sys.exit(2)
    if names:
        return {name: EVERY[name] for name in names}
    return SETS[flags[0] if flags else ""]


def sum_of(groups: Groups, budgets: dict[str, int], lowest: Sequence[str] = ()) -> Count:
    """Runs them one after the other, some at the lowest priority."""
    counts = (
        run_group(name, body, budgets[name], lowest=name in lowest) for name, body in groups.items()
    )
    return sum(counts, Count())


def run_all(groups: Groups, budgets: dict[str, int]) -> Count:
    """Runs the groups of ROWS beside each other, and then the others."""
    rows = [{name: groups[name] for name in row if name in groups} for row in ROWS]
    rows = [row for row in rows if row]
    lowest = CALCULATE if len(rows) > 1 else ()
    with ThreadPoolExecutor(max_workers=len(ROWS)) as executor:
        counts = list(executor.map(lambda row: sum_of(row, budgets, lowest), rows))
    in_rows = {name for row in rows for name in row}
    others = {name: body for name, body in groups.items() if name not in in_rows}
    return sum(counts, Count()) + sum_of(others, budgets)


def main() -> int:
    groups = chosen_groups(sys.argv[1:])
    budgets = tomllib.loads((ROOT / "ci" / "budgets.toml").read_text())
    whole = budgets["whole"].get(" ".join(["ci/test", *sys.argv[1:]]))
    LOGS.mkdir(parents=True, exist_ok=True)
    # Torch looks up the name of each peer that it connects to: a lost answer costs a second, not 5.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")
    start = time.monotonic()
    thin()  # measures while nothing else runs, and once for all groups
    # grid and soak run unit tests of the release build.
    once = "asan" in groups and not {"grid", "soak"} & groups.keys()
    prepare = PREPARE | {"build": build_once} if once else PREPARE
    total = sum_of(prepare, budgets["seconds"])
    if not total.failed:
        total += run_all(groups, budgets["seconds"])
    took = beside(time.monotonic() - start, whole)
    print(f"\ntests took {took}; logs are in {LOGS.relative_to(ROOT)}")
    if thin.cache_info().hits:
        print(f"of tests with many cases one in {thin()[1]} ran, as this machine's speed allows")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    print(closing_line(total))
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
