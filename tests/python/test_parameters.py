# SPDX-License-Identifier: Apache-2.0
"""The documentation's table of settings and the type of ``smp.state.cfg`` are those of the code.

SMP_UPDATE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from types import ModuleType

from smdistributed import _runtime

RUNTIME = Path(__file__).resolve().parents[2] / "smp_runtime"
DOCUMENT = RUNTIME / "topology" / "parameters.md"
STUB = RUNTIME / "python" / "smdistributed" / "_runtime.pyi"


def fields() -> str:
    """Fields of the class ``ParallelConfig``."""
    text = ""
    for name, kind, meaning in _runtime.parameter_fields():
        sentence = textwrap.fill(
            f'"""{meaning}"""', 100, initial_indent="    ", subsequent_indent="    ",
            break_on_hyphens=False,
        )  # fmt: skip
        text += f"    {name}: {kind}\n{sentence}\n"
    return text


def test_table_in_the_documentation_is_that_of_the_code() -> None:
    if os.environ.get("SMP_UPDATE_GOLDEN") == "1":
        introduction = DOCUMENT.read_text().partition("| key |")[0]
        DOCUMENT.write_text(introduction + _runtime.parameters_as_markdown())

    assert DOCUMENT.read_text().endswith(_runtime.parameters_as_markdown())


def test_every_key_has_a_row() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]

    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert named == set(_runtime.parameter_names())


def test_the_type_of_the_settings_is_that_of_the_code() -> None:
    head, begin, rest = STUB.read_text().partition("    partitions: ")
    _, end, tail = rest.partition("\ndef make_parallel_config(")
    assert begin
    assert end
    made = head + fields() + end + tail
    if os.environ.get("SMP_UPDATE_GOLDEN") == "1":
        STUB.write_text(made)

    assert STUB.read_text() == made


def test_the_settings_of_a_job_have_the_types_that_are_said(smp: ModuleType) -> None:
    for name, kind, _ in _runtime.parameter_fields():
        value = getattr(smp.state.cfg, name)
        assert type(value).__name__.replace("NoneType", "None") in kind.split(" | "), name
