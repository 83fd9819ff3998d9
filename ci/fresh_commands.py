# SPDX-License-Identifier: Apache-2.0
"""The commands of the README, in its order, and what is wrong with how one of them went."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A line of ci/ or docker/, with those that continue it; or a block that is pasted as a whole.
COMMAND = re.compile(r"^    ((?:ci|docker)/(\w+)(?:.*\\\n)*.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r" +# .*")


def commands_of(readme: str) -> dict[str, str]:
    """By name: that of the script, or block-1, block-2 ..."""
    found = {
        match.start(): (match[2], COMMENT.sub("", match[1])) for match in COMMAND.finditer(readme)
    }
    for number, match in enumerate(BLOCK.finditer(readme), start=1):
        found[match.start()] = (f"block-{number}", match[1])
    return dict(found[place] for place in sorted(found))


def trains(command: str) -> bool:
    """True if it runs a training script in the end, which may be silent as long as it likes."""
    return "--program " in command


@dataclass(frozen=True)
class Result:
    who: str
    command: str  # its name
    code: int
    seconds: float
    silence: float  # [s] the longest

    def complaints(self, limit: int | None, silence: int | None) -> list[str]:
        """Failures: an exit code, too much time, too long a silence; the limits are in [s]."""
        wrong = [f"exit code {self.code}"] if self.code != 0 else []
        if limit is not None and self.seconds > limit:
            wrong.append("over its limit")
        if silence is not None and self.silence > silence:
            wrong.append(f"silent for more than {silence} s")
        return wrong

    def row(self, limit: int | None, silence: int | None) -> str:
        ended = ", ".join(self.complaints(limit, silence)) or "good"
        return (
            f"{self.who:<5} {self.command:<12} {self.seconds:6.0f} s  {limit or '-':>6}"
            f"  {self.silence:6.0f} s   {ended}"
        )
