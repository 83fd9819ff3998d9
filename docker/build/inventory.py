# SPDX-License-Identifier: Apache-2.0
"""The components of the image: SBOMs, licences, and which component each program file belongs to.

    inventory.py write FOLDER CREATED   SBOMs, licences.txt, versions.txt under FOLDER
    inventory.py orphans                program files (ELF) that belong to none or to several

Works offline, from dpkg's status, the wheels' metadata and the lists that compile.sh leaves.
Equal images give equal bytes: nothing is random, and CREATED (RFC 3339) comes from the caller.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path

SITE = Path("/opt/venv/lib/python3.11/site-packages")
DPKG = Path("/var/lib/dpkg")
OWN = Path("/usr/share/doc/smp")
# Versions for jobs and bug reports: our name, and the package that has the version.
VERSIONS = (
    ("python", "deb", "python3.11"),
    ("torch", "pypi", "torch"),
    ("cuda", "pypi", "cuda-toolkit"),
    ("cudnn", "pypi", "nvidia-cudnn-cu13"),
    ("nccl", "pypi", "nvidia-nccl-cu13"),
    ("triton", "pypi", "triton"),
    ("openmpi", "deb", "libopenmpi3"),
    ("libfabric", "deb", "libfabric1"),
    ("rdma-core", "deb", "libibverbs1"),
    ("efa-installer", "generic", "aws-efa-installer"),
)
# With AWS's installer nothing loads these.
REPLACED_BY_EFA = {"libfabric1", "libibverbs1"}
EFA = (Path("/opt/amazon/efa"), Path("/opt/amazon/ofi-nccl"))
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice|copyright|eula)", re.IGNORECASE)
OURS = "smp-train"
NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122: names that are URLs


@dataclass(frozen=True, order=True)
class Component:
    kind: str  # deb, pypi or generic: the type of its package URL
    name: str
    version: str
    licence: str  # as the component itself states it; an SPDX expression if `is_expression`
    is_expression: bool = False
    licence_files: tuple[str, ...] = ()
    scope: str = "required"  # "optional": compiled into our programs, not there as a file

    @property
    def purl(self) -> str:
        space = "deb/debian" if self.kind == "deb" else self.kind
        version = self.version.replace("+", "%2B").replace(":", "%3A")
        return f"pkg:{space}/{self.name.lower()}@{version}"


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a file in Debian's control format."""
    for block in re.split(r"\n\s*\n", text.strip()):
        yield dict(HeaderParser().parsestr(block).items())


def debian_licence(name: str) -> tuple[str, tuple[str, ...]]:
    path = Path("/usr/share/doc") / name / "copyright"
    if not path.exists():
        return "", ()
    text = path.read_text(errors="replace")
    names = {match.strip() for match in re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)}
    return ", ".join(sorted(names)), (str(path),)


def debian_packages() -> Iterator[Component]:
    for fields in paragraphs((DPKG / "status").read_text()):
        if fields.get("Status", "").endswith(" installed"):
            licence, files = debian_licence(fields["Package"])
            yield Component(
                "deb", fields["Package"], fields["Version"], licence, licence_files=files
            )


def stated_licence(package: Distribution) -> tuple[str, bool]:
    meta = package.metadata
    if expression := meta.get("License-Expression"):
        return expression, True
    line = (meta.get("License") or "").strip().splitlines()[:1]
    if line and len(line[0]) <= 80:
        return line[0], False
    classifiers = meta.get_all("Classifier") or []
    names = [text.rsplit(" :: ", 1)[1] for text in classifiers if text.startswith("License :: ")]
    return ", ".join(names), False


def python_packages() -> Iterator[Component]:
    for package in distributions(path=[str(SITE)]):
        licence, is_expression = stated_licence(package)
        files = [
            str(path.locate()) for path in package.files or [] if LICENCE_FILE.search(path.name)
        ]
        there = tuple(sorted(os.path.normpath(path) for path in files if Path(path).exists()))
        name = package.metadata["Name"]
        yield Component("pypi", name, package.version, licence, is_expression, there)


def own_components(version: str) -> Iterator[Component]:
    yield Component("generic", OURS, version, "Apache-2.0", True, (str(OWN / "LICENSE"),))
    for line in (OWN / "compiled-in.tsv").read_text().splitlines():
        name, found = line.split("\t")
        yield Component("deb", name, found, "see the package", scope="optional")
    digest = EFA[0] / "installer.sha256"
    if digest.exists():
        texts = sorted(str(path) for path in EFA[0].rglob("*") if LICENCE_FILE.search(path.name))
        version = digest.read_text().strip()
        yield Component("generic", "aws-efa-installer", version, "several", False, tuple(texts))


def own_version() -> str:
    listed = (OWN / "version").read_text()
    return listed.strip()


def components() -> list[Component]:
    return sorted({*debian_packages(), *python_packages(), *own_components(own_version())})


# --- documents -------------------------------------------------------------------------------


def cyclonedx(parts: list[Component], created: str) -> dict[str, object]:
    def entry(part: Component) -> dict[str, object]:
        found: dict[str, object] = {"type": "library", "bom-ref": part.purl, "name": part.name}
        found |= {"version": part.version, "purl": part.purl, "scope": part.scope}
        if part.is_expression:
            found["licenses"] = [{"expression": part.licence}]
        elif part.licence:
            found["licenses"] = [{"license": {"name": part.licence}}]
        return found

    entries = [entry(part) for part in parts if part.name != OURS]
    ours = next(part for part in parts if part.name == OURS)
    serial = uuid.uuid5(NAMESPACE, json.dumps(entries) + created)
    root = {"type": "container", "bom-ref": ours.purl, "name": ours.name, "version": ours.version}
    root["licenses"] = [{"expression": ours.licence}]  # type: ignore[assignment]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": created, "component": root},
        "components": entries,
    }


def spdx(parts: list[Component], created: str) -> dict[str, object]:
    def identifier(part: Component) -> str:
        plain = re.sub(r"[^A-Za-z0-9.-]", "-", f"{part.kind}-{part.name}-{part.version}")
        return f"SPDXRef-{plain}-{part.scope}"

    packages = [
        {
            "SPDXID": identifier(part),
            "name": part.name,
            "versionInfo": part.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": part.licence if part.is_expression else "NOASSERTION",
            "licenseComments": f"as stated by the component: {part.licence or 'nothing'}",
            "copyrightText": "NOASSERTION",
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": part.purl,
                }
            ],
        }
        for part in parts
    ]
    ours = next(identifier(part) for part in parts if part.name == OURS)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours)]
    for part in parts:
        if part.name != OURS:
            verb = "CONTAINS" if part.scope == "required" else "STATIC_LINK"
            relations.append((ours, verb, identifier(part)))
    digest = uuid.uuid5(NAMESPACE, json.dumps(packages) + created)
    # Licences outside of SPDX's list, which expressions may name only when they are explained.
    references = {
        name: part
        for part in reversed(parts)
        if part.is_expression
        for name in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", part.licence)
    }
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "smp-train",
        "documentNamespace": f"urn:uuid:{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: smp-train-inventory"]},
        "hasExtractedLicensingInfos": [
            {
                "licenseId": name,
                "extractedText": f"as in {part.name}: {' '.join(part.licence_files) or 'no file'}",
            }
            for name, part in sorted(references.items())
        ],
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": verb, "relatedSpdxElement": other}
            for one, verb, other in relations
        ],
    }


def licence_list(parts: list[Component]) -> str:
    lines = [
        "Components of this image, their licences as they state them, and where the texts are."
    ]
    for part in parts:
        lines += ["", f"{part.name} {part.version} ({part.kind}): {part.licence or 'see its text'}"]
        lines += [f"  {path}" for path in part.licence_files]
    return "\n".join(lines) + "\n"


def version_list(parts: list[Component]) -> str:
    """One "name version" a line, of what the image has."""
    found = {(part.kind, part.name): part.version for part in parts if part.scope == "required"}
    replaced = REPLACED_BY_EFA if ("generic", "aws-efa-installer") in found else set()
    rows = [
        (name, found.get((kind, package)))
        for name, kind, package in VERSIONS
        if package not in replaced
    ]
    lines = [f"{OURS} {own_version()}"]
    return "\n".join(lines + [f"{name} {version}" for name, version in rows if version]) + "\n"


def write(folder: Path, created: str) -> None:
    parts = components()
    for name, document in (("cdx", cyclonedx(parts, created)), ("spdx", spdx(parts, created))):
        (folder / f"sbom.{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "licences.txt").write_text(licence_list(parts))
    (folder / "versions.txt").write_text(version_list(parts))
    print(f"inventory: {len(parts)} components")


# --- files and their owners ------------------------------------------------------------------


def real(path: str) -> str:
    """The path without links in its folders: Debian lists /lib/x where /usr/lib/x is."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def owners() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for listing in (DPKG / "info").glob("*.list"):
        for line in listing.read_text().splitlines():
            found[real(line)].add("deb " + listing.stem.split(":")[0])
    for package in distributions(path=[str(SITE)]):
        for path in package.files or []:
            found[real(os.path.normpath(path.locate()))].add("pypi " + package.metadata["Name"])
    for path in (path for prefix in EFA for path in prefix.rglob("*")):
        found[real(str(path))].add("aws-efa-installer")
    for line in (OWN / "files.list").read_text().splitlines():
        found[real(line)].add("smp-train")
    return found


def program_files(root: str = "/") -> Iterator[str]:
    """Regular ELF files of this filesystem; what is mounted into it is not the image's."""
    device = os.stat(root).st_dev
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if os.lstat(os.path.join(folder, name)).st_dev == device
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def orphans() -> list[str]:
    known = owners()
    files = list(program_files())
    wrong = [f"{path}: {sorted(known[path])}" for path in files if len(known[path]) != 1]
    print(f"inventory: {len(files)} program files, {len(wrong)} without exactly one component")
    return wrong


def main() -> int:
    match sys.argv[1:]:
        case ["write", folder, created]:
            write(Path(folder), created)
        case ["orphans"]:
            wrong = orphans()
            print("\n".join(wrong))
            return 1 if wrong else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
