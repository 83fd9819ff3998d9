# SPDX-License-Identifier: Apache-2.0
"""The variables of the library: what they may hold, and misspelled names."""

from __future__ import annotations

import pytest
import smdistributed.modelparallel.torch as library
from smdistributed import _variables
from smdistributed.modelparallel.torch._session.launch_environment import read_launch_environment
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

SWITCHES = [v.name for v in _variables.VARIABLES if v.kind is _variables.SWITCH]


def test_every_default_of_the_table_may_stand_there() -> None:
    given = {v.name: v.default for v in _variables.VARIABLES}

    for variable in _variables.VARIABLES:
        assert _variables.read(variable.name, given) == _variables.read(variable.name, {})


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_take_these_words(name: str) -> None:
    for text in ("1", "on", "True", "YES"):
        assert _variables.read(name, {name: text}) is True, text
    for text in ("0", "off", "False", "no"):
        assert _variables.read(name, {name: text}) is False, text


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *((name, "of", "expected 1, on, true or yes, or 0") for name in SWITCHES),
        ("SMP_PROGRESS", "2", "expected 1, on, true or yes, or 0"),
        ("SMP_TIMEOUT_SECONDS", "0", "a number of seconds above 0"),
        ("SMP_TIMEOUT_SECONDS", "nan", "a number of seconds above 0"),
        ("SMP_TIMEOUT_SECONDS", "inf", "a number of seconds above 0"),
        ("SMP_PARTITIONER", "best", "expected auto or compat"),
        ("SM_LOG_LEVEL", "loud", "a level of Python's logging"),
    ],
)
def test_other_values_are_refused(name: str, text: str, expected: str) -> None:
    with pytest.raises(SMPConfigError, match=f"{name} is '{text}'; ") as caught:
        read_launch_environment({name: text})

    assert expected in str(caught.value)


def test_levels_have_numbers_and_names() -> None:
    for text in ("10", "DEBUG", "debug"):
        assert read_launch_environment({"SM_LOG_LEVEL": text}).log_level == 10


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    given = {v.name: "" for v in _variables.VARIABLES}

    assert read_launch_environment(given).timeout_seconds == 1800
    assert read_launch_environment(given).progress


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SMP_PROGRES", "SMP_PROGRESS"),
        ("SMP_TIMEOUT", "SMP_TIMEOUT_SECONDS"),
        ("SMP_METRIC", "SMP_METRICS"),
        ("SMP_EXTRA_CA_FILES", "SMP_EXTRA_CA_FILE"),
    ],
)
def test_a_misspelled_name_is_told_with_the_nearest(name: str, meant: str) -> None:
    warnings = read_launch_environment({name: "1"}).warnings

    assert warnings == (f"{name} is not known; did you mean {meant}?",)


def test_a_name_that_is_like_no_other_is_told_too() -> None:
    assert (
        "SMP_WINTER is not known; docs/" in read_launch_environment({"SMP_WINTER": ""}).warnings[0]
    )


def test_what_others_read_is_no_misspelling() -> None:
    given = dict.fromkeys([*_variables.OTHERS, "SMDDP_X", "SM_LAUNCH_X", "SMPX", "HOME"], "1")

    assert read_launch_environment(given).warnings == ()


def test_init_warns_once_of_a_misspelled_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    monkeypatch.setenv("SMP_PROGRES", "off")

    library.init()
    library.shutdown()

    assert capfd.readouterr().err.count("SMP_PROGRES is not known; did you mean SMP_PROGRESS?") == 1
