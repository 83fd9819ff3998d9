# SPDX-License-Identifier: Apache-2.0
"""Our own writer and reader of safetensors files, against the library safetensors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._files.safetensors_file import (
    SafetensorsWriter,
    file_order,
    mapped_tensors,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

safetensors = pytest.importorskip("safetensors.torch")

TYPES = [
    torch.uint64, torch.int64, torch.float64, torch.complex64, torch.float32, torch.uint32,
    torch.int32, torch.bfloat16, torch.float16, torch.uint16, torch.int16, torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip


# --- Writing ---


def test_a_file_is_the_one_that_safetensors_writes(tmp_path: Path) -> None:
    entries = {f"of {dtype} ü": torch.arange(16, dtype=torch.uint8).view(dtype) for dtype in TYPES}
    entries["of bool"] = torch.tensor([[True], [False]])
    entries |= {"none": torch.ones(0, 3), "one": torch.tensor(2.5), "turned": torch.ones(2, 3).t()}
    writer = SafetensorsWriter(tmp_path / "ours", entries)

    for name in writer.names:
        writer.write(entries[name])
    writer.commit()

    plain = {name: value.contiguous() for name, value in entries.items()}
    safetensors.save_file(plain, tmp_path / "theirs", {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    read, expected = mapped_tensors(tmp_path / "ours"), safetensors.load_file(tmp_path / "ours")
    assert read.keys() == expected.keys() == entries.keys()
    for name, value in entries.items():
        for one in (read[name], expected[name]):
            assert (one.dtype, one.shape) == (value.dtype, value.shape)
            assert torch.equal(flat(one), flat(value)), name


def flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def test_tensors_lie_in_a_file_by_type_and_name() -> None:
    one = torch.ones(1)

    order = file_order({"b": one, "a": one.half(), "c": one, "d": one.double(), "aa": one.bool()})

    assert order == ["d", "b", "c", "a", "aa"]


# --- Reading ---


def entry(begin: int = 0, end: int = 8, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def write(path: Path, header: Any, data: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


TWICE = b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{}}'
HOSTILE = {
    "no JSON": (b"{", "header is no JSON"),
    "no UTF-8": (b"\xff\xfe", "header is no JSON"),
    "deep": (b"[" * 10**5, "header is no JSON"),
    "no object": ([1], "header is a list"),
    "a name twice": (TWICE, "a name is there twice"),
    "an entry that is none": ({"a": 3}, "tensor a is 3, not dtype"),
    "parts missing": ({"a": {"dtype": "F32", "shape": [2]}}, "tensor a is .*, not dtype"),
    "an unknown type": ({"a": entry(dtype="F31")}, "tensor a has the type 'F31'; known are .*F32"),
    "a type that is none": ({"a": entry(dtype=[])}, r"tensor a has the type \[\]"),
    "a negative size": ({"a": entry(shape=[-2])}, r"tensor a has shape \[-2\]"),
    "a size that is none": ({"a": entry(shape=[2.0])}, r"tensor a has shape \[2.0\]"),
    "a truth value": ({"a": entry(shape=[2, True])}, "tensor a has shape"),
    "a huge size": ({"a": entry(shape=[2**63])}, "tensor a has shape"),
    "sizes whose product is huge": (
        {"a": entry(shape=[2**32, 2**32])}, r"8 bytes; F32 of shape \[.*\] has 73786976294838206464"
    ),
    "three offsets": ({"a": {**entry(), "data_offsets": [0, 4, 8]}}, "data_offsets"),
    "another size": ({"a": entry(shape=[3])}, r"8 bytes; F32 of shape \[3\] has 12"),
    "an end before the begin": ({"a": entry(8, 0)}, "-8 bytes"),
    "an end behind the file": (
        {"a": entry(), "b": entry(8, 16)}, "it is cut off: tensor b ends at byte 16 of 8"
    ),
    "an overlap": (
        {"a": entry(0, 8), "b": entry(4, 8, [1])}, "tensor b, from byte 4 on, overlaps tensor a"
    ),
    "twice the same bytes": ({"a": entry(), "b": entry()}, "tensor b, .* overlaps tensor a"),
    "a gap": ({"a": entry(4, 8, [1])}, "tensor a, from byte 4 on, leaves a gap behind the header"),
    "bytes of nobody": ({"a": entry(0, 4, [1])}, "4 bytes at its end belong to no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_file_is_refused_by_file_and_tensor(tmp_path: Path, name: str) -> None:
    header, expected = HOSTILE[name]
    path = write(tmp_path / "bad.safetensors", header)

    with pytest.raises(SMPCheckpointError, match=expected) as caught:
        mapped_tensors(path)

    assert str(caught.value).startswith(f"cannot read {path}: ")
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    safetensors.save_file({"a": torch.ones(3), "b": torch.ones(2, 2)}, path)
    whole = path.read_bytes()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SMPCheckpointError, match=re.escape(f"cannot read {path}: ")):
            mapped_tensors(path)


def test_a_header_of_an_endless_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff" * 16)

    with pytest.raises(SMPCheckpointError, match=r"16 bytes, and its header alone would have 1844"):
        mapped_tensors(tmp_path / "a")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SMPCheckpointError, match=r"cannot read .*a: No such file"):
        mapped_tensors(tmp_path / "a")


def test_a_file_without_tensors_or_elements_is_read(tmp_path: Path) -> None:
    assert mapped_tensors(write(tmp_path / "a", {}, b"")) == {}
    assert mapped_tensors(write(tmp_path / "b", {"__metadata__": {"a": "b"}}, b"")) == {}
    empty = mapped_tensors(write(tmp_path / "c", {"a": entry(0, 0, [0, 3])}, b""))
    assert empty["a"].shape == (0, 3)


def test_tensors_that_do_not_lie_aligned_are_read(tmp_path: Path) -> None:
    header = {"a": entry(0, 1, [1], "U8"), "b": entry(1, 9)}
    data = b"\x07" + b"\x00\x00\x80\x3f" * 2

    read = mapped_tensors(write(tmp_path / "a", header, data))

    assert read["a"].tolist() == [7]
    assert read["b"].tolist() == [1.0, 1.0]


def test_writing_to_what_was_read_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": torch.ones(3)}, path)
    before = path.read_bytes()

    mapped_tensors(path)["a"].zero_()

    assert path.read_bytes() == before


def test_only_what_is_looked_at_is_read(tmp_path: Path) -> None:
    """A slice along the first axis has the pages of its own bytes alone in memory."""
    rows, slice_rows = 4096, 512
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": torch.ones(rows, 1024), "b": torch.ones(rows, 1024)}, path)

    read = mapped_tensors(path)
    at_first = resident_bytes(path)
    total = read["b"][-slice_rows:].clone().sum()

    own = slice_rows * 1024 * 4
    around = 2 * 64 * 1024  # pages that Linux maps beside the first and the last one
    assert total == slice_rows * 1024
    assert at_first == 0
    assert own <= resident_bytes(path) <= own + around


def resident_bytes(path: Path) -> int:
    """Of the mapping of a file into this process."""
    text = Path("/proc/self/smaps").read_text()
    found = re.search(rf"{re.escape(str(path))}\n(?:\w.*\n)*?Rss: +(\d+) kB", text)
    assert found is not None
    return 1024 * int(found[1])
