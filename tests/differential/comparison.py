# SPDX-License-Identifier: Apache-2.0
"""Differences between two observations, each with a name that the list of intended ones can give.

Names: outcome; program, directory; env.PROGRAM.NAME, env.PROGRAM.SM_TRAINING_ENV.KEY;
argv.PROGRAM.WORD, for options of mpirun with their key: argv.mpirun.-x NAME; code, failure,
failure.LABEL, out, err, log.LINE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from tests.differential.observation import Observation, Started

ABSENT = None
TWO_VALUES = ("-mca", "--mca")
ONE_VALUE = ("-x", "--host", "-np", "-bind-to", "-map-by", "--map-by", "--bind-to", "-n")
OF_THE_TEST = re.compile("SMP_RECORDER$|_$|SHLVL$|PWD$|OLDPWD$|LC_CTYPE$")


# Places of installed files: the preloaded library, our binary, the reference's own sys.path.
SHIM = re.compile(r"[^=: ]*/(?:libsmp_hostname|gethostname\.[^/ ]*)\.so")
OUR_BINARY = re.compile(r"^/\S*/bin/train$")
OF_PYTHON = re.compile(r"/(?:python3\d*\.zip|python3\.\d+|lib-dynload|site-packages)$")


@dataclass(frozen=True)
class Difference:
    name: str
    ours: str | None
    theirs: str | None

    def __str__(self) -> str:
        return f"{self.name}\n    ours:   {shown(self.ours)}\n    theirs: {shown(self.theirs)}"


def shown(value: str | None) -> str:
    if value is None:
        return "(absent)"
    return repr(value if len(value) < 2000 else value[:2000] + "...")


def differences(ours: Observation, theirs: Observation) -> list[Difference]:
    """Two jobs that ended differently have one difference, the outcome: all else follows."""
    if ours.planned:
        if ours.code != 0 or not theirs.started:
            return [*text("outcome", outcome(ours), outcome(theirs))]
        return launches(ours.started, theirs.started[:1])
    if (ours.succeeded, ours.failure is None) != (theirs.succeeded, theirs.failure is None):
        return [Difference("outcome", outcome(ours), outcome(theirs))]
    found = [
        *text("code", str(ours.code), str(theirs.code)),
        *failures(ours.failure, theirs.failure),
        *text("out", "\n".join(ours.user_out), "\n".join(theirs.user_out)),
        *text("err", "\n".join(ours.user_err), "\n".join(theirs.user_err)),
    ]
    for line in dict.fromkeys([*ours.known_lines, *theirs.known_lines]):
        found += text("log." + line, mark(line, ours.known_lines), mark(line, theirs.known_lines))
    return found + launches(ours.started, theirs.started)


def outcome(seen: Observation) -> str:
    if seen.succeeded:
        return f"success, exit {seen.code}"
    if seen.failure is None:
        return f"no marker, exit {seen.code}"
    lines = seen.failure.strip().splitlines()
    # The reference's own errors: the last line of a traceback tells more than the first.
    what = lines[-1] if lines[0].startswith("Framework Error") else lines[0]
    return f"failure, exit {seen.code}: {what}"


def launches(ours: list[Started], theirs: list[Started]) -> list[Difference]:
    programs = [" ".join(started.program for started in each) for each in (ours, theirs)]
    found = [*text("program", *programs)]
    for mine, other in zip(ours, theirs, strict=False):
        if mine.program == other.program:
            found += starts(mine, other)
    return found


def mark(line: str, lines: list[str]) -> str | None:
    return "present" if line in lines else ABSENT


def text(name: str, ours: str | None, theirs: str | None) -> Iterator[Difference]:
    if ours != theirs:
        yield Difference(name, ours, theirs)


def failures(ours: str | None, theirs: str | None) -> Iterator[Difference]:
    """Differences of failure texts. After a script that failed: category, ExitCode and Command; the
    words in between are ours. After a job that was refused: the first line."""
    if ours is None or theirs is None:
        return
    mine, other = ours.splitlines()[0], theirs.splitlines()[0]
    if mine != other:
        yield Difference("failure", mine, other)
        return
    for label in ("ExitCode", "ExtraInfo", "Command"):
        pattern = re.compile(rf'^{label} "?(.*?)"?$', re.MULTILINE)
        values = [
            match[1] if (match := pattern.search(each)) else ABSENT for each in (ours, theirs)
        ]
        if label == "Command" and values[0] and values[1] and values[0].endswith("..."):
            values = [values[0][:-3], values[1][: len(values[0]) - 3]]  # ours is cut, all follows
        yield from text(f"failure.{label}", *values)


def starts(ours: Started, theirs: Started) -> Iterator[Difference]:
    where = ours.program
    if where != "worker":  # a worker starts nothing itself
        yield from text("directory", ours.directory, theirs.directory)
    yield from arguments(where, *([placed(word) for word in each.argv] for each in (ours, theirs)))
    mine, other = visible(ours.environment), visible(theirs.environment)
    for name in sorted(mine.keys() | other.keys()):
        values = mine.get(name), other.get(name)
        if name == "SM_TRAINING_ENV" and None not in values:
            yield from members(f"env.{where}.{name}", *values)
        else:
            yield from text(f"env.{where}.{name}", *values)


def placed(word: str) -> str:
    return OUR_BINARY.sub("<train>", SHIM.sub("<hostname shim>", word))


def visible(environment: dict[str, str]) -> dict[str, str]:
    shown = {name: placed(value) for name, value in environment.items()}
    folders = shown.get("PYTHONPATH", "").split(":")
    # The second is where the launcher itself lies; the last are the reference's own interpreter's.
    kept = [path for i, path in enumerate(folders) if i != 1 and not OF_PYTHON.search(path)]
    shown["PYTHONPATH"] = ":".join(kept)
    return {name: value for name, value in shown.items() if not OF_THE_TEST.match(name)}


def members(name: str, ours: str, theirs: str) -> Iterator[Difference]:
    """Key by key; a difference that shows in no key is one of the whole text."""
    if ours == theirs:
        return
    values = json.loads(ours), json.loads(theirs)
    keys = sorted(values[0].keys() | values[1].keys())
    shown_keys = 0
    for key in keys:
        dumped = [json.dumps(each[key]) if key in each else ABSENT for each in values]
        for difference in text(f"{name}.{key}", *dumped):
            shown_keys += 1
            yield difference
    if shown_keys == 0:
        yield Difference(name, ours, theirs)


def units(argv: list[str]) -> list[tuple[str, ...]]:
    """mpirun's options with their values, and then each word alone."""
    result: list[tuple[str, ...]] = []
    at = 0
    while at < len(argv):
        count = 3 if argv[at] in TWO_VALUES else 2 if argv[at] in ONE_VALUE else 1
        result.append(tuple(argv[at : at + count]))
        at += count
    return result


def unit_name(unit: tuple[str, ...]) -> str:
    """`-x NAME`, `-mca KEY`, `--host`, or the word itself."""
    if unit[0] == "-x":
        return "-x " + unit[1].partition("=")[0]
    if unit[0] in TWO_VALUES:
        return "-mca " + unit[1]
    return unit[0]


def arguments(where: str, ours: list[str], theirs: list[str]) -> Iterator[Difference]:
    """Each unit that is missing, added or elsewhere. What merely moved counts as both."""
    wrapped = where in ("mpirun", "smddprun", "smddpmprun")  # their options are mpirun's
    mine, other = (
        units(argv) if wrapped else [(word,) for word in argv] for argv in (ours, theirs)
    )
    matcher = SequenceMatcher(None, mine, other, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            continue
        gone = {unit_name(unit): unit for unit in other[j1:j2]}
        added = {unit_name(unit): unit for unit in mine[i1:i2]}
        for name in dict.fromkeys([*added, *gone]):
            values = (" ".join(each[name]) if name in each else ABSENT for each in (added, gone))
            yield Difference(f"argv.{where}.{name}", *values)
