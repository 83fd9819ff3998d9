# SPDX-License-Identifier: Apache-2.0
"""The variables of the library: what they may hold, and misspelled names."""

from __future__ import annotations

from datetime import timedelta

import pytest
import smdistributed.modelparallel.torch as library
from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

TABLE = _runtime.runtime_variables()
SWITCHES = {
    "SMP_PROGRESS": "progress",
    "SMP_DIRECT_EXCHANGE": "direct_exchange",
    "SMP_CPU": "cuda_on_cpu",
    "SMP_DEEPSPEED_COMPAT": "deepspeed_names",
}


def test_every_default_of_the_table_may_stand_there() -> None:
    _runtime.runtime_options({name: default for name, default, _ in TABLE})


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_take_these_words(name: str) -> None:
    for text in ("1", "on", "True", "YES"):
        assert getattr(_runtime.runtime_options({name: text}), SWITCHES[name]) is True, text
    for text in ("0", "off", "False", "no"):
        assert getattr(_runtime.runtime_options({name: text}), SWITCHES[name]) is False, text


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *((name, "of", "expected 1, on, true or yes, or 0") for name in SWITCHES),
        ("SMP_PROGRESS", "2", "expected 1, on, true or yes, or 0"),
        ("SMP_TIMEOUT_SECONDS", "0", "a number of seconds above 0"),
        ("SMP_TIMEOUT_SECONDS", "nan", "a number of seconds above 0"),
        ("SMP_TIMEOUT_SECONDS", "inf", "a number of seconds above 0"),
        ("SMP_PARTITIONER", "best", "expected auto or compat"),
        ("SMP_SELF_CHECK", "-1", "how many steps are to be checked"),
        ("SMP_SELF_CHECK", "on", "how many steps are to be checked"),
        ("SM_LOG_LEVEL", "loud", "a level of Python's logging"),
    ],
)
def test_other_values_are_refused(name: str, text: str, expected: str) -> None:
    with pytest.raises(SMPConfigError, match=f'variable {name} is "{text}"; ') as caught:
        _runtime.runtime_options({name: text})

    assert expected in str(caught.value)


def test_levels_have_numbers_and_names() -> None:
    for text in ("10", "DEBUG", "debug"):
        assert _runtime.runtime_options({"SM_LOG_LEVEL": text}).log_level == 10


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    given = dict.fromkeys((name for name, *_ in TABLE), "")

    assert _runtime.runtime_options(given).timeout == timedelta(minutes=30)
    assert _runtime.runtime_options(given).progress


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
    warnings = _runtime.runtime_options({name: "1"}).warnings

    assert warnings == [f"{name} is not known; did you mean {meant}?"]


def test_a_name_that_is_like_no_other_is_told_too() -> None:
    assert (
        "SMP_WINTER is not known; docs/" in _runtime.runtime_options({"SMP_WINTER": ""}).warnings[0]
    )


def test_what_others_read_is_no_misspelling() -> None:
    of_others = ["SMP_EXTRA_CA_FILE", "SMP_LAUNCH_FOLDER", "SMP_TRAIN", "SMDDP_X", "SM_LAUNCH_X"]
    given = dict.fromkeys([*of_others, "SMPX", "HOME"], "1")

    assert _runtime.runtime_options(given).warnings == []


def test_init_warns_once_of_a_misspelled_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    monkeypatch.setenv("SMP_PROGRES", "off")

    library.init()
    library.shutdown()

    assert capfd.readouterr().err.count("SMP_PROGRES is not known; did you mean SMP_PROGRESS?") == 1
