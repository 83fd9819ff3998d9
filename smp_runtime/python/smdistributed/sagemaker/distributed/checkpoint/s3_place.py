# SPDX-License-Identifier: Apache-2.0
"""A prefix in S3 as the place of a checkpoint."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

from smdistributed.modelparallel.torch._files.dcp_folder import METADATA
from smdistributed.modelparallel.torch._files.digests import DIGESTS
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.sagemaker._s3_objects import S3Objects, address_of
from smdistributed.sagemaker.logger import get_logger


class S3Place:
    """Each rank uploads the files that it has written, below a name that is new for each save. The
    checkpoint is there when ``.metadata`` is, which is uploaded last and names those files; what is
    left of the one before it, and of saves that did not end, is removed then."""

    def __init__(self, address: str, objects: S3Objects) -> None:
        self.target = address_of(address)
        self.prefix = ""
        self._objects = objects
        self._folder = tempfile.TemporaryDirectory(prefix="smp-save-", ignore_cleanup_errors=True)
        self.staging = Path(self._folder.name)

    def check(self) -> None:
        """Nothing: the first request shows it."""

    def exists(self) -> bool:
        metadata = f"{self.target}/{METADATA}"
        return metadata in self._objects.addresses(metadata)

    def begin(self) -> None:
        self._objects.addresses(f"{self.target}/{METADATA}")  # raises before anybody writes data
        self.prefix = f"smp-{uuid.uuid4().hex}/"

    def enter(self, prefix: str) -> None:
        self.prefix = prefix
        (self.staging / prefix).mkdir(parents=True, exist_ok=True)

    def take(self, names: Iterable[str]) -> None:
        for name in names:
            self._upload(name)

    def publish(self) -> None:
        self._upload(self.prefix + DIGESTS)
        self._upload(METADATA)
        try:
            self._remove_others()
        except SMPCheckpointError as error:
            get_logger().warning(
                "the checkpoint %s is there, but not alone: %s", self.target, error
            )

    def give_up(self) -> None:
        """Nothing: the next save removes it."""

    def _upload(self, name: str) -> None:
        file = self.staging / name
        self._objects.put(file, f"{self.target}/{name}")
        file.unlink()

    def _remove_others(self) -> None:
        saves = re.compile(re.escape(f"{self.target}/") + "(smp-[0-9a-f]{32}/)[^/]+")
        for address in self._objects.addresses(f"{self.target}/smp-"):
            found = saves.fullmatch(address)
            if found and found[1] != self.prefix:
                self._objects.remove(address)
