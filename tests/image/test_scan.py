# SPDX-License-Identifier: Apache-2.0
"""ci/scan with a made-up scanner: what fails, what is allowed, and until when."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.image.engine import ROOT

GRYPE = {
    "matches": [
        {
            "vulnerability": {"id": identifier, "severity": severity},
            "artifact": {"name": "openssl", "version": "3.0.1"},
        }
        for identifier, severity in (("CVE-2026-1", "High"), ("CVE-2026-2", "Low"))
    ]
}
TRIVY = {
    "Results": [
        {"Target": "clean"},
        {
            "Vulnerabilities": [
                {
                    "VulnerabilityID": "CVE-2026-3",
                    "PkgName": "zlib1g",
                    "InstalledVersion": "1:1.2",
                    "Severity": "CRITICAL",
                }
            ]
        },
    ]
}
ALLOWED = '[[allow]]\nid = "CVE-2026-1"\nreason = "not reachable"\nuntil = {until}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "sbom.json").write_text('{"bomFormat": "CycloneDX"}')
    (tmp_path / "allow.toml").write_text("")
    return tmp_path


def scanner(folder: Path, name: str, answer: str) -> None:
    """A program that reads its input as the real one does, and answers so."""
    program = folder / "bin" / name
    program.write_text(f"#!/bin/sh\ncase \"$*\" in *sbom.json*) cat <<'END'\n{answer}\nEND\nesac\n")
    program.chmod(0o755)


def scan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    files = ("--sbom", folder / "sbom.json", "--allow", folder / "allow.toml")
    return subprocess.run(
        [ROOT / "ci/scan", *files, *words],
        env=os.environ | {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_serious_findings_fail_and_are_listed(folder: Path) -> None:
    scanner(folder, "grype", json.dumps(GRYPE))

    done = scan(folder)

    assert done.returncode == 1, done.stderr
    assert "CVE-2026-1           openssl 3.0.1" in done.stdout
    assert "CVE-2026-2" not in done.stdout
    assert "2 findings, 1 of them high or worse, 0 allowed, 1 left" in done.stdout
    assert "CVE-2026-2" in scan(folder, "--severity", "low").stdout


def test_the_other_scanner_is_understood(folder: Path) -> None:
    scanner(folder, "trivy", json.dumps(TRIVY))

    done = scan(folder)

    assert done.returncode == 1, done.stderr
    assert "critical   CVE-2026-3           zlib1g 1:1.2" in done.stdout


def test_what_is_allowed_passes_until_its_day(folder: Path) -> None:
    scanner(folder, "grype", json.dumps(GRYPE))
    (folder / "allow.toml").write_text(ALLOWED.format(until="2999-01-01"))
    assert scan(folder).returncode == 0

    (folder / "allow.toml").write_text(ALLOWED.format(until="2026-01-01"))
    late = scan(folder)

    assert late.returncode == 2
    assert "CVE-2026-1 was allowed until 2026-01-01" in late.stderr


@pytest.mark.parametrize(
    ("answer", "allow", "complaint"),
    [
        (None, "", "none of grype, trivy is on PATH"),
        ("database error", "", "gave no report"),
        ("{}", '[[allow]]\nid = "CVE-2026-1"\n', "give id, reason and until"),
    ],
    ids=["no scanner", "no report", "no reason"],
)
def test_what_keeps_it_from_scanning_is_an_error_of_its_own(
    folder: Path, answer: str | None, allow: str, complaint: str
) -> None:
    if answer is not None:
        scanner(folder, "grype", answer)
    (folder / "allow.toml").write_text(allow)

    done = scan(folder)

    assert done.returncode == 2
    assert complaint in done.stderr


def test_the_list_of_the_project_is_valid(folder: Path) -> None:
    scanner(folder, "grype", "{}")

    done = scan(folder, "--allow", str(ROOT / "ci/scan_allow.toml"))

    assert done.returncode == 0, done.stderr
