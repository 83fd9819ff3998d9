# SPDX-License-Identifier: Apache-2.0
"""Checkpoints without a job: ``python -m smdistributed.modelparallel.checkpoint``, and a writer and
a reader for ``torch.distributed.checkpoint`` in any script."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.conversions import convert
from smdistributed.modelparallel.torch._files.checkpoint_kinds import Checkpoint, checkpoints_below
from smdistributed.modelparallel.torch._files.dcp_storage import StorageReader, StorageWriter
from smdistributed.modelparallel.torch._files.inert_pickle import InertObject, TensorFacts
from smdistributed.modelparallel.torch._files.torch_file import BadFile
from smdistributed.modelparallel.torch._files.verification import verifications
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPError

__all__ = ["StorageReader", "StorageWriter", "convert", "main"]

_PROGRAM = "python -m smdistributed.modelparallel.checkpoint"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where something is not whole or cannot be read."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Looks into checkpoints, and converts them."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    verify = commands.add_parser("verify", help="say which files are cut off, missing or damaged")
    verify.set_defaults(run=_verify)
    verify.add_argument("--record", action="store_true",
                        help="write sizes and checksums beside what is whole")  # fmt: skip
    inspect = commands.add_parser("inspect", help="say what checkpoints hold")
    inspect.set_defaults(run=_inspect)
    converted = commands.add_parser("convert", help="write one in another form")
    converted.set_defaults(run=_convert)
    converted.add_argument("source", type=Path, help="a checkpoint, or the folder of several")
    converted.add_argument("target", type=Path, help="a folder")
    converted.add_argument("--to", choices=["dcp", "huggingface", "v2"], required=True,
                           help="torch.distributed.checkpoint, with the optimizer's state; "
                           "safetensors of the model; or both, for scripts of SMP v2")  # fmt: skip
    converted.add_argument("--key", help="where a checkpoint of DCP has the model: app.model")
    converted.add_argument("--max-shard-size", default="5GB", metavar="SIZE",
                           help="of a file for Hugging Face (5GB)")  # fmt: skip
    converted.add_argument("--config", type=Path, metavar="PATH",
                           help="config.json for Hugging Face (that of SOURCE)")  # fmt: skip
    converted.add_argument("--content", type=_entries, metavar="JSON",
                           help="what scripts of SMP v2 read besides: {\"epoch\": 0}")  # fmt: skip
    for command in (verify, inspect):
        command.add_argument("path", type=Path, nargs="+", help="a checkpoint, a folder of them, "
                             "or a file")  # fmt: skip
        command.add_argument("--json", action="store_true", help="one JSON object in place of text")
    given = parser.parse_args(arguments)
    try:
        return int(given.run(given))
    except SMPError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # a reader that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _verify(given: argparse.Namespace) -> int:
    found = [one for path in given.path for one in verifications(path, record=given.record)]
    if given.json:
        listed = [{**asdict(one), "folder": str(one.folder), "whole": one.is_whole}
                  for one in found]  # fmt: skip
        print(json.dumps({"format": 1, "checkpoints": listed}, indent=1))
    else:
        print("\n".join(map(str, found)))
    return 0 if all(one.is_whole for one in found) else 1


def _convert(given: argparse.Namespace) -> int:
    print(convert(given.source, given.target, given.to, key=given.key, config=given.config,
                  max_shard_size=given.max_shard_size, content=given.content))  # fmt: skip
    return 0


def _entries(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no object of JSON; expected entries by name")
    return content


def _inspect(given: argparse.Namespace) -> int:
    listed = []
    for path in given.path:
        if not path.exists():
            raise SMPCheckpointError(f"there is no checkpoint {path}")
        for place, one in checkpoints_below(path):
            try:
                if isinstance(one, BadFile):
                    raise one
                entries = dict(_described(one))
            except (BadFile, OSError) as error:
                raise SMPCheckpointError(f"{place}: {error}; see {_PROGRAM} verify") from error
            if given.json:
                listed.append({"folder": str(place), "kind": one.kind, "entries": entries})
                continue
            elements = sum(entry.get("elements", 0) for entry in entries.values())
            print(f"{place}: {one.kind}, {len(one.names)} files, {len(entries)} entries, "
                  f"{elements} elements")  # fmt: skip
            for name, entry in entries.items():
                print(f"  {name}: {_told(entry)}")
    if given.json:
        print(json.dumps({"format": 1, "checkpoints": listed}, indent=1))
    return 0


def _described(one: Checkpoint) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in one.entries():
        if isinstance(value, TensorFacts):
            yield name, {"dtype": value.dtype, "shape": list(value.shape),
                         "elements": value.elements}  # fmt: skip
        elif isinstance(value, InertObject):
            yield name, {"class": value.name}
        else:
            text = repr(value)
            yield name, {"value": text if len(text) <= 100 else text[:97] + "..."}


def _told(entry: dict[str, Any]) -> str:
    if "dtype" in entry:
        return f"{entry['dtype']} {entry['shape']}"
    return f"object of {entry['class']}" if "class" in entry else str(entry["value"])


if __name__ == "__main__":
    sys.exit(main())
