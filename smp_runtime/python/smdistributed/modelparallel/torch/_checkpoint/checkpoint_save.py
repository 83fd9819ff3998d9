# SPDX-License-Identifier: Apache-2.0
"""One save of a checkpoint by all ranks: staged, written, published in one step, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel import __version__
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import write_object
from smdistributed.modelparallel.torch._session import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

#: What the name of a checkpoint in parts ends with.
PARTIAL = "_partial"
#: The file that names the newest checkpoint of its folder.
NEWEST = "newest"


class CheckpointSave:
    """One save: a staging folder, what each rank wrote into it, and its publication.

    As a context: an error of any rank is raised on all of them, and leaves nothing behind.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._root, self._name = root, name
        self._written: list[_runtime.FileDigest] = []
        self._all_written: list[_runtime.FileDigest] = []
        self._publish: Callable[[], None] = lambda: None
        self.publishes = False
        """Whether this rank makes the checkpoint visible: one does in each folder, which is one in
        the job where all hosts see the same folder."""

    def __enter__(self) -> CheckpointSave:
        asked = comm.allgather((str(self._root), self._name), comm.CommGroup.WORLD)
        for rank, other in enumerate(asked):
            if other != asked[0]:
                raise SMPCheckpointError(
                    f"smp.save_checkpoint: rank 0 saves {asked[0]}, rank {rank} {other}; all ranks "
                    "save the same checkpoint"
                )
        self._token = comm.broadcast_from_rank0(uuid.uuid4().hex[:12])
        # Rank 0 first, so that it is the one where all hosts see the same folder.
        for turn in (ranks.rank() == 0, ranks.local_rank() == 0):
            self._together(self._open if turn and not self.publishes else lambda: None)
        self._folder = _runtime.staging_path(self._root, self._name, self._token)
        return self

    def _open(self) -> None:
        self.publishes = _runtime.open_staging(self._root, self._name, self._token)

    def write(self, name: str, obj: Any) -> None:
        self._written.append(write_object(self._folder / name, obj))

    def write_text(self, name: str, text: str) -> None:
        self._written.append(_runtime.write_file(self._folder / name, text))

    def publish_folder(self) -> None:
        self._publish = lambda: self._finish("manifest.json", _runtime.publish_folder)

    def publish_files(self, manifest: str) -> None:
        self._publish = lambda: self._finish(manifest, _runtime.publish_files)

    def _finish(self, manifest: str, publish: Callable[[Path, str, str], None]) -> None:
        if not self.publishes:
            return
        content = _runtime.Manifest(
            tag=self._name.removesuffix(PARTIAL),
            library=__version__,
            pp=ranks.pp_size(),
            tp=ranks.tp_size(),
            rdp=ranks.rdp_size(),
            files=self._all_written,
        )
        _runtime.write_file(self._folder / manifest, content.to_json())
        publish(self._root, self._name, self._token)
        _runtime.write_file(self._root / NEWEST, self._name)

    def __exit__(self, _type: Any, error: BaseException | None, _trace: Any) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # the process is ending; the next save tidies up
        try:
            reports = _outcomes(error, self._written)
            _raise_first(reports, "smp.save_checkpoint", error)
            files = {file.name: file for _, written in reports for file in written}
            self._all_written = sorted(files.values(), key=lambda file: file.name)
            self._together(self._publish)
        except Exception:
            if self.publishes:
                _runtime.discard_staging(self._root, self._name, self._token)
            raise

    @staticmethod
    def _together(act: Callable[[], None]) -> None:
        with agreement("smp.save_checkpoint"):
            act()


@contextmanager
def agreement(what: str) -> Iterator[None]:
    """Raises on all ranks what one of them raised inside: else the others would wait for it."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
        _raise_first(_outcomes(error, []), what, failure)
    else:
        _raise_first(_outcomes(None, []), what, None)


def _outcomes(
    error: BaseException | None, written: list[_runtime.FileDigest]
) -> list[tuple[str, list[_runtime.FileDigest]]]:
    text = "" if error is None else str(error) or type(error).__name__
    return comm.allgather((text, written), comm.CommGroup.WORLD)


def _raise_first(
    reports: list[tuple[str, list[_runtime.FileDigest]]], what: str, own: BaseException | None
) -> None:
    failed = [rank for rank, (text, _) in enumerate(reports) if text]
    if own is not None:
        raise own
    if failed:
        raise SMPCheckpointError(f"{what} failed on rank {failed[0]}: {reports[failed[0]][0]}")
