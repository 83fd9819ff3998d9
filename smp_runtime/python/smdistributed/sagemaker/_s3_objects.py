# SPDX-License-Identifier: Apache-2.0
"""Whole objects of S3 from and to files, by the launcher's client: the functions of
``libsmp_transfer.so`` (entrypoint/fetch/object_calls.h)."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import (
    SMPCheckpointError,
    SMPInternalError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.sagemaker.logger import get_logger

_MODULE = "libsmp_transfer.so"
_ABSENT, _BUG = 3, 4  # kinds of failures; others are of the user, or of S3 and the network
_LEAST_PART, _LARGEST_PART = 5 << 20, 5 << 30


class NoSuchObject(SMPCheckpointError):
    """There is no object of that name."""


class _Failure(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("text", ctypes.c_char * 4092))


class _Options(ctypes.Structure):
    _fields_ = (
        ("region", ctypes.c_char_p),
        ("profile", ctypes.c_char_p),
        ("attempts", ctypes.c_int),
        ("log_level", ctypes.c_int),
        ("part_bytes", ctypes.c_int64),
    )


def is_s3_uri(path: str | os.PathLike[str]) -> bool:
    """
    >>> is_s3_uri("s3://bucket/job"), is_s3_uri("/opt/ml/checkpoints")
    (True, False)
    """
    return str(path).startswith(("s3:/", "S3:/"))  # Path("s3://a") has one slash left


def address_of(path: str | os.PathLike[str]) -> str:
    """``s3://bucket/prefix`` without slashes at its end, also of a ``Path``, which has lost one.

    >>> address_of("S3://bucket/job/"), address_of(Path("s3://bucket/job"))
    ('s3://bucket/job', 's3://bucket/job')
    """
    return "s3://" + re.sub("^s3:/+", "", str(path), flags=re.IGNORECASE).rstrip("/")


class S3Objects:
    """Objects that are reached with the credentials of this process. Addresses are
    ``s3://bucket/key``. A call blocks until it is done, or given up after its retries.

    Args:
        region: by default what AWS's own variables say.
        config: an ``S3ClientConfig`` of s3torchconnector, or a mapping: ``part_size`` of uploads,
            ``max_attempts`` of a request and ``profile`` count; ``throughput_target_gbps`` and
            ``force_path_style`` have no effect.

    Raises:
        SMPCheckpointError: on a failed call, naming bucket, key and the reason; NoSuchObject where
            there is none.
    """

    def __init__(self, region: str | None = None, config: Any = None) -> None:
        options = _options(region, config)
        self._library = _library()
        self._one_at_a_time = threading.Lock()
        failure = _Failure()
        self._handle = self._library.smp_objects_open(ctypes.byref(options), ctypes.byref(failure))
        _check(failure)
        weakref.finalize(self, self._library.smp_objects_close, self._handle)

    def get(self, address: str, file: Path) -> None:
        """Writes an object to a file, over what is there."""
        self._call("get", address.encode(), os.fsencode(file))

    def put(self, file: Path, address: str) -> None:
        """Uploads a file; the object is there whole, or the one before it is."""
        self._call("put", os.fsencode(file), address.encode())

    def remove(self, address: str) -> None:
        """Removes an object, if there is one."""
        self._call("remove", address.encode())

    def addresses(self, address: str) -> list[str]:
        """Addresses that begin with ``address``, in order."""
        size = ctypes.c_size_t()
        found = self._call("list", address.encode(), ctypes.byref(size))
        try:
            keys = ctypes.string_at(found, size.value).split(b"\0")[:-1]
        finally:
            self._library.smp_objects_free(found)
        bucket = "/".join(address.split("/", 3)[:3])
        return [f"{bucket}/{key.decode()}" for key in keys]

    def _call(self, name: str, *arguments: Any) -> Any:
        failure = _Failure()
        with self._one_at_a_time:
            call = getattr(self._library, f"smp_objects_{name}")
            result = call(self._handle, *arguments, ctypes.byref(failure))
        _check(failure)
        return result


def _check(failure: _Failure) -> None:
    if failure.kind:
        text = failure.text.decode(errors="replace")
        kinds = {_ABSENT: NoSuchObject, _BUG: SMPInternalError}
        raise kinds.get(failure.kind, SMPCheckpointError)(text)


@functools.cache
def _library() -> ctypes.CDLL:
    """The module of this installation: its ``lib/smp`` lies beside a folder above the package."""
    own = Path(_runtime.__file__)
    above = [*own.absolute().parents, *own.resolve().parents]
    places = [folder / "lib" / "smp" / _MODULE for folder in above]
    file = next((place for place in places if place.exists()), None)
    if file is None:
        raise SMPCheckpointError(
            f"there is no {_MODULE}, by which objects of S3 are reached, in lib/smp of any folder "
            f"above {own.parent}; install open-smp-train anew"
        )
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        raise SMPCheckpointError(
            f"objects of S3 cannot be reached: {error}; install libcurl4 and libarchive13"
        ) from error
    text, pointer, failure = ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(_Failure)
    for name, arguments, result in (
        ("open", (ctypes.POINTER(_Options), failure), pointer),
        ("close", (pointer,), None),
        ("get", (pointer, text, text, failure), None),
        ("put", (pointer, text, text, failure), None),
        ("remove", (pointer, text, failure), None),
        ("list", (pointer, text, ctypes.POINTER(ctypes.c_size_t), failure), pointer),
        ("free", (pointer,), None),
    ):
        call = getattr(library, f"smp_objects_{name}")
        call.argtypes, call.restype = arguments, result
    return library


def _options(region: str | None, config: Any) -> _Options:
    given = dict(config) if isinstance(config, Mapping) else vars(config) if config else {}
    known = {"part_size", "max_attempts", "profile", "unsigned", "throughput_target_gbps",
             "force_path_style"}  # fmt: skip
    unknown = sorted(given.keys() - known)
    if unknown:
        raise SMPValidationError(
            f"s3client_config has {', '.join(unknown)}; expected {', '.join(sorted(known))}"
        )
    if given.get("unsigned"):
        raise SMPUnsupportedError(
            "s3client_config has unsigned=True; checkpoints in S3 need credentials: leave it out"
        )
    part = int(given.get("part_size") or 256 << 20)
    if not _LEAST_PART <= part <= _LARGEST_PART:
        raise SMPValidationError(
            f"s3client_config has part_size={part}; expected {_LEAST_PART} to {_LARGEST_PART}"
        )
    attempts = int(given.get("max_attempts") or 8)
    if attempts < 1:
        raise SMPValidationError(f"s3client_config has max_attempts={attempts}; expected 1 or more")
    profile = given.get("profile")
    return _Options(
        region=region.encode() if region else None,
        profile=str(profile).encode() if profile else None,
        attempts=attempts,
        log_level=get_logger().getEffectiveLevel(),
        part_bytes=part,
    )
