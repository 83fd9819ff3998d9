# SPDX-License-Identifier: Apache-2.0
"""Variables that registering smddp leaves for libfabric, where no launcher may have set any."""

from __future__ import annotations

import ctypes

import pytest
from smdistributed.dataparallel.torch import backend_registration


def seen_by_c(name: str) -> str | None:
    read = ctypes.CDLL(None).getenv
    read.restype = ctypes.c_char_p
    value = read(name.encode())
    return value and value.decode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FI_EFA_FORK_SAFE", "1"),
        ("FI_OFI_RXM_EAGER_LIMIT", "262144"),
        ("FI_OFI_RXM_MSG_RX_SIZE", "64"),
    ],
)
def test_libfabric_finds_its_settings_without_a_launcher(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)

    backend_registration.register()

    assert seen_by_c(name) == value


def test_a_setting_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FI_EFA_FORK_SAFE", "0")

    backend_registration.register()

    assert seen_by_c("FI_EFA_FORK_SAFE") == "0"
