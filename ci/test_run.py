# SPDX-License-Identifier: Apache-2.0
"""One test group of ci/test while it runs: its commands, its log, what its reports count."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
CMAKE, CTEST = (ROOT / ".venv" / "bin" / name for name in ("cmake", "ctest"))
BEAT = 5  # [s] without a word
LOOK = 0.1  # [s] between looks at a command
LOWEST_PRIORITY = ("nice", "-n", "19")


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
    lowest: bool = False  # priority
    start: float = field(default_factory=time.monotonic)
    processor: float = 0  # [s] that its commands took, with all that they started and waited for
    failed: list[str] = field(default_factory=list)  # the tests that failed, with what they printed

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    def run(self, *command: str | Path) -> int:
        with self.log.open("a") as log:
            process = self.started(command, log, stdout=log, stderr=subprocess.STDOUT)
            told = time.monotonic()
            try:
                while (code := self.ended(process)) is None:
                    time.sleep(LOOK)
                    if time.monotonic() - told > BEAT:
                        told = time.monotonic()
                        self.tell_progress()
            except BaseException:
                process.terminate()
                process.wait()
                raise
            return code

    def ended(self, process: subprocess.Popen[str]) -> int | None:
        """The exit code of a command that has ended, whose processor time is added up."""
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.processor += used.ru_utime + used.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode

    def started(
        self, command: Sequence[str | Path], log: IO[str], *, stdout: IO[str], stderr: int
    ) -> subprocess.Popen[str]:
        """A command of the group, which the log names."""
        words = [*LOWEST_PRIORITY, *map(str, command)] if self.lowest else [*map(str, command)]
        print("$", shlex.join(words), file=log, flush=True)
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
        )

    def tell_progress(self) -> None:
        """One line on stderr: for how long the group runs, and what its log said last."""
        took = time.monotonic() - self.start
        last = tail(self.log, 1).rpartition("\r")[2].strip()
        print(f"  {self.name}: {took:.0f} s, {last[-90:]}", file=sys.stderr, flush=True)

    def announced(self, *command: str | Path) -> tuple[int, str]:
        """Exit code and stdout of a command that installs or starts something. What it says on
        stderr, how far it is among it, reaches the user as well as the log."""
        with (
            self.log.open("a") as log,
            tempfile.TemporaryFile("w+") as results,
            self.started(command, log, stdout=results, stderr=subprocess.PIPE) as process,
        ):
            assert process.stderr is not None
            for line in process.stderr:
                for place in (log, sys.stderr):
                    print(line, end="", file=place, flush=True)
            code = process.wait()
            results.seek(0)
            return code, results.read()

    def require(self, *command: str | Path) -> None:
        if self.run(*command) != 0:
            raise Failed(shlex.join(str(word) for word in command))

    def counted(self, *command: str | Path, report: Path) -> Count:
        """Runs a test program that writes a JUnit report; counts what it says."""
        report.unlink(missing_ok=True)
        code = self.run(*command)
        count = read_report(report) if report.exists() else Count()
        self.failed += failures(report) if count.failed else []
        # A runner that dies, or fails outside of any test, has failed all the same.
        if code != 0 and count.failed == 0:
            count.failed = 1
        return count

    def ctest(self, preset: str, *options: str) -> Count:
        report = LOGS / f"{self.name}.xml"
        selection = ["--preset", preset, "--output-junit", str(report), *options]
        return self.counted(CTEST, *selection, report=report)

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


def failures(path: Path) -> Iterator[str]:
    """For each test that failed by a JUnit report its name and the end of what it printed."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        for found in (*case.iterfind("failure"), *case.iterfind("error")):
            said = found.text or case.findtext("system-out") or found.get("message") or ""
            yield f"{case.get('name')}:\n{last_lines(said, 60)}"


def last_lines(text: str, count: int) -> str:
    return "\n".join(text.splitlines()[-count:])


def tail(path: Path, lines: int) -> str:
    return last_lines(path.read_text(errors="replace"), lines)


def beside(took: float, budget: int | None) -> str:
    """A time beside its budget, if it has one."""
    if budget is None:
        return f"{took:.0f} s"
    return f"{took:.0f} s of {budget} s" + (", over its budget" if took > budget else "")


def run_group(
    name: str, body: Callable[[Group], Count], budget: int, *, lowest: bool = False
) -> Count:
    group = Group(name, lowest=lowest)
    group.log.write_text("")
    if threading.current_thread() is threading.main_thread():  # another would break its line
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
    used = f"{group.processor:.0f} s of processor time"
    print(f"\r{name:<12} {text} ({beside(took, budget)}; {used})", flush=True)
    if count.failed:
        end = f"the end of {group.log.relative_to(ROOT)}:\n{tail(group.log, 60)}"
        for text in group.failed[:5] or [end]:
            print(f"--- {text}\n---")
    return count


def closing_line(total: Count) -> str:
    """ctest's own last line, over all groups: what tools that watch test runs look for."""
    ran = total.passed + total.failed
    percent = 100 * total.passed // max(ran, 1)
    return f"{percent}% tests passed, {total.failed} tests failed out of {ran}"
