#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""States where an image comes from: an in-toto statement with an SLSA provenance predicate.

Usage: provenance.py FOLDER BASE BASE_DIGEST [NAME=VALUE...]

FOLDER holds inspect.json (docker image inspect) and engine.json (docker version); the rest are
the build's arguments. Prints JSON. Not signed: signing is for whoever publishes the image.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_PREDICATE = "https://slsa.dev/provenance/v1"


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def locks() -> list[dict[str, object]]:
    """Every file that says what is fetched, with its sum."""
    files = sorted((ROOT / "docker" / "locks").glob("*"))
    return [
        {
            "name": str(file.relative_to(ROOT)),
            "digest": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
        }
        for file in files
    ]


def statement(folder: Path, base: str, base_digest: str, arguments: list[str]) -> dict[str, object]:
    image = json.loads((folder / "inspect.json").read_text())[0]
    engine = json.loads((folder / "engine.json").read_text())
    source: dict[str, object] = {"name": "source"}
    if commit := git("rev-parse", "HEAD"):
        source["digest"] = {"gitCommit": commit}
    changed = bool(git("status", "--porcelain", "--untracked-files=no"))
    base_entry = {"name": base, "digest": {"sha256": base_digest.removeprefix("sha256:")}}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {
                "name": image["RepoTags"][0],
                # The image's id: the sum of its configuration, which names all layers.
                "digest": {"sha256": image["Id"].removeprefix("sha256:")},
            }
        ],
        "predicateType": SOURCE_PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": "https://mobyproject.org/buildkit@v1",
                "externalParameters": {
                    "dockerfile": "Dockerfile",
                    "arguments": dict(text.partition("=")[::2] for text in arguments),
                },
                "internalParameters": {"sourceHasLocalChanges": changed},
                "resolvedDependencies": [source, base_entry, *locks()],
            },
            "runDetails": {
                "builder": {"id": "ci/image", "version": {"docker": engine["Version"]}},
                "metadata": {"finishedOn": image["Created"]},
            },
        },
    }


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    folder, base, digest, *arguments = sys.argv[1:]
    print(json.dumps(statement(Path(folder), base, digest, arguments), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
