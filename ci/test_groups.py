#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The test groups behind ci/test: what each runs, needs and counts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import tomllib

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
BEAT = 5  # [s] without a word
CPUS = len(os.sched_getaffinity(0))


class Skipped(Exception):
    """A group cannot run here; the text says what it lacks."""


class Failed(Exception):
    """A command before the tests themselves failed."""


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


@dataclass
class Group:
    """One test group while it runs: its commands write to one log."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    def run(self, *command: str | Path) -> int:
        words = [str(word) for word in command]
        with self.log.open("a") as log:
            print("$", shlex.join(words), file=log, flush=True)
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            while True:
                try:
                    return process.wait(BEAT)
                except subprocess.TimeoutExpired:
                    self.tell_progress()
                except BaseException:
                    process.terminate()
                    process.wait()
                    raise

    def tell_progress(self) -> None:
        """One line on stderr: for how long the group runs, and what its log said last."""
        took = time.monotonic() - self.start
        last = tail(self.log, 1).rpartition("\r")[2].strip()
        print(f"  {self.name}: {took:.0f} s, {last[-90:]}", file=sys.stderr, flush=True)

    def require(self, *command: str | Path) -> None:
        if self.run(*command) != 0:
            raise Failed(shlex.join(str(word) for word in command))

    def counted(self, *command: str | Path, report: Path) -> Count:
        """Runs a test program that writes a JUnit report; counts what it says."""
        report.unlink(missing_ok=True)
        code = self.run(*command)
        count = read_report(report) if report.exists() else Count()
        # A runner that dies, or fails outside of any test, has failed all the same.
        if code != 0 and count.failed == 0:
            count.failed = 1
        return count

    def ctest(self, preset: str, *options: str) -> Count:
        report = LOGS / f"{self.name}.xml"
        selection = ["--preset", preset, "--output-junit", str(report), *options]
        return self.counted("ctest", *selection, report=report)

    def pytest(self, *options: str) -> Count:
        report = LOGS / f"{self.name}.xml"
        program = [".venv/bin/python", "-m", "pytest", "-ra", "--color=no", f"--junit-xml={report}"]
        return self.counted(*program, *options, report=report)


def read_report(path: Path) -> Count:
    count = Count()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        number = {key: int(suite.get(key) or 0) for key in ("tests", "failures", "errors")}
        skipped = int(suite.get("skipped") or 0) + int(suite.get("disabled") or 0)
        failed = number["failures"] + number["errors"]
        count += Count(number["tests"] - failed - skipped, failed, skipped)
    return count


def listed_tests(preset: str, *options: str) -> list[str]:
    """Names of the tests that ctest would run."""
    text = subprocess.run(
        ["ctest", "--preset", preset, "--show-only", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [line.split(": ", 1)[1] for line in text.splitlines() if line.startswith("  Test ")]


def labelled(label: str, jobs: int = 1) -> Callable[[Group], Count]:
    """A group that is a ctest label of the release build."""

    def run(group: Group) -> Count:
        selection = ("--label-regex", f"^{label}$")
        if not listed_tests("release", *selection):
            raise Skipped(f"no test is labelled {label}")
        return group.ctest("release", *selection, "--parallel", str(jobs))

    return run


PACKAGE = {"PYTHONPATH": f"{ROOT}/build/release/python"}


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
    group.environment |= PACKAGE
    return count + group.pytest("tests/mpi", "-m", "thorough and not long")


def torch_suite(group: Group) -> Count:
    group.environment |= PACKAGE
    return group.pytest("tests/torch_suite", "-m", "not long")


def one_test(*command: str) -> Callable[[Group], Count]:
    """A group that is one command, which passes or fails as a whole."""

    def run(group: Group) -> Count:
        return Count(passed=1) if group.run(*command) == 0 else Count(failed=1)

    return run


def sanitized(preset: str, pattern: str) -> Callable[[Group], Count]:
    """Unit tests whose name matches, built and run with a sanitizer; nothing of it links Torch."""

    def run(group: Group) -> Count:
        selection = ("--label-regex", "^unit$", "--tests-regex", pattern)
        group.require("cmake", "--preset", preset)
        names = listed_tests(preset, *selection)
        group.require("cmake", "--build", "--preset", preset, "--target", *names)
        return group.ctest(preset, *selection, "--parallel", str(CPUS))

    return run


def use_engine(group: Group) -> None:
    """Makes the group's commands use a Docker engine, started where none runs."""
    found = subprocess.run(
        ["ci/engine", "start"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        reason = (found.stderr.strip() or "no answer").splitlines()[-1]
        raise Skipped(f"no Docker engine runs or can be started: {reason}")
    name, _, value = found.stdout.strip().splitlines()[-1].partition("=")
    group.environment[name] = value


def image(group: Group) -> Count:
    use_engine(group)
    group.require("ci/image")
    return group.pytest("tests/image", "-m", "not cluster and not long")


def cluster(group: Group) -> Count:
    use_engine(group)
    group.require("ci/image")  # or an older one would be tested
    return group.pytest("tests/image", "-m", "cluster and not long")


def slurm(group: Group) -> Count:
    if os.geteuid() != 0:
        raise Skipped("the nodes' namespaces and daemons need root")
    group.require("ci/setup", "--slurm")
    return group.pytest("tests/slurm", "-m", "not long")


def pods(group: Group) -> Count:
    return group.pytest("tests/pods", "-m", "not long")


def images(group: Group) -> Count:
    use_engine(group)
    return group.pytest("tests/image", "-m", "long")


def soak(group: Group) -> Count:
    matrix = "^launcher_signal_matrix$"
    many = ("--label-regex", "^(unit|launcher)$", "--exclude-regex", matrix)
    count = group.ctest("release", *many, "--repeat", "until-fail:20")
    for _ in range(20):
        count += mpi(group)
    # Every signal to every runner: not one process may be left in a hundred rounds.
    return count + group.ctest("release", "--tests-regex", matrix, "--repeat", "until-fail:100")


def grid(group: Group) -> Count:
    """Tests whose usual run takes a few of many cases: all of them."""
    group.run("ci/peers")
    group.environment |= PACKAGE | {"SMP_LONG_TESTS": "1", "SMP_FUZZ_ROUNDS": "10000"}
    pattern = "^(partition|pipeline_(fuzz|placement|shared_order))_test$"
    count = group.ctest("release", "--tests-regex", pattern)
    names = (
        "tests/mpi/test_real_models.py",
        "tests/mpi/test_sharded_models.py",
        "tests/mpi/test_tensor_states.py",
        "tests/mpi/test_tensor_state_checkpoints.py",
        "tests/mpi/test_kills.py",
        "tests/mpi/test_direct_exchange.py",
        "tests/mpi/test_smddp.py",
        "tests/mpi/test_smddp_gloo.py",
        "tests/mpi/test_tensor_schedules.py",
        "tests/mpi/test_hugging_face.py",
        "tests/mpi/test_backward_counting.py",
        "tests/mpi/test_assignments.py",
    )
    count += group.pytest(*names, "tests/python/test_checkpoints.py")
    return count + group.pytest("tests/mpi", "tests/torch_suite", *PAGES, "-m", "long")


def mistakes(group: Group) -> Count:
    """What users do wrong, as jobs; writes docs/mistakes.md."""
    group.environment |= PACKAGE
    return group.pytest("tests/mistakes")


def cold(group: Group) -> Count:
    """Each source by itself: what another file of its unit includes does not help it."""
    folder = ROOT / "build" / "cold"
    shutil.rmtree(folder, ignore_errors=True)
    group.environment["CCACHE_DISABLE"] = "1"
    options = ["-DSMP_DEVELOPER_MODE=ON", f"-DSMP_PYTHON={ROOT / '.venv/bin/python'}"]
    options += ["-DCMAKE_UNITY_BUILD=OFF"]
    group.require("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options)
    group.require("cmake", "--build", folder, "--target", "all", "tests")
    shutil.rmtree(folder)
    return Count(passed=1)


def documents(group: Group) -> Count:
    group.require("ci/docs")
    return labelled("documents")(group)


def prepared(*command: str) -> Callable[[Group], Count]:
    """A step that no test can do without; it counts only when it fails."""

    def run(group: Group) -> Count:
        group.require(*command)
        return Count()

    return run


PREPARE = {"setup": prepared("ci/setup", "--tests"), "build": prepared("ci/build", "--tests")}
# What shows that this machine runs the product.
HERE = {
    "lint": one_test("ci/check"),
    "unit": labelled("unit", CPUS),
    "golden": labelled("golden", CPUS),
    "launcher": labelled("launcher", CPUS),
    "mpi": mpi,
    "python": labelled("python"),
    "examples": examples,
    "gpu": labelled("gpu"),
}
ALL = HERE | {
    "thorough": thorough,
    "documents": documents,
    "differential": labelled("differential"),
    "asan": sanitized("asan", "."),
    "tsan": sanitized("tsan", "^(pipeline|transport|collectives|session)"),
    "image": image,
    "cluster": cluster,
    "torch_suite": torch_suite,
}
EVERY = ALL | {
    "slurm": slurm,
    "pods": pods,
    "images": images,
    "grid": grid,
    "mistakes": mistakes,
    "fuzz": one_test("ci/fuzz"),
    "soak": soak,
    "cold": cold,
    "fresh": one_test("ci/fresh"),
    "figures": one_test("ci/figures", "--measure"),
}
SETS = {"": HERE, "--all": ALL, "--long": EVERY}


def tail(path: Path, lines: int) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def run_group(name: str, body: Callable[[Group], Count], budget: int) -> Count:
    group = Group(name)
    group.log.write_text("")
    print(f"{name:<12} ...", end="", flush=True)
    start = time.monotonic()
    try:
        count = body(group)
        text = f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped"
    except Skipped as reason:
        count, text = Count(skipped=1), f"skipped: {reason}"
    except Failed as command:
        count, text = Count(failed=1), f"failed: {command}"
    took = time.monotonic() - start
    over = ", over its budget" if took > budget else ""
    print(f"\r{name:<12} {text} ({took:.0f} s of {budget} s{over})", flush=True)
    if count.failed:
        print(f"--- the end of {group.log.relative_to(ROOT)}:\n{tail(group.log, 60)}\n---")
    return count


def closing_line(total: Count) -> str:
    """ctest's own last line, over all groups: what tools that watch test runs look for."""
    ran = total.passed + total.failed
    percent = 100 * total.passed // max(ran, 1)
    return f"{percent}% tests passed, {total.failed} tests failed out of {ran}"


def chosen_groups(arguments: list[str]) -> dict[str, Callable[[Group], Count]]:
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


def main() -> int:
    groups = chosen_groups(sys.argv[1:])
    budgets = tomllib.loads((ROOT / "ci" / "budgets.toml").read_text())["seconds"]
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    total = Count()
    for name, body in (PREPARE | groups).items():
        total += run_group(name, body, budgets[name])
        if name in PREPARE and total.failed:
            break
    print(f"\ntests took {time.monotonic() - start:.0f} s; logs are in {LOGS.relative_to(ROOT)}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    print(closing_line(total))
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
