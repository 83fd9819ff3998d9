# SPDX-License-Identifier: Apache-2.0
"""The scripts of ci/ start from anywhere, answer on stdout alone, and refuse before they change
anything, with one sentence, what cannot work on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT

SCRIPTS = sorted(
    path.name
    for path in (ROOT / "ci").iterdir()
    if path.is_file() and os.access(path, os.X_OK) and path.suffix in ("", ".sh")
)
# A program that notes how it was called; what it does then comes after.
NOTED = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\n'
DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
# The engine of a machine where none runs: what answers at Docker's usual place is not ours to stop.
FAKE_ENGINE = """\
#!/usr/bin/python3
import http.server, os, socketserver, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = b'{"Version": "20.10", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}'
        self.send_response(200)
        for name in (("Api-Version", "1.41"), ("Content-Length", str(len(text)))):
            self.send_header(*name)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)
    do_HEAD = do_GET
    def log_message(self, *words): pass
    def address_string(self): return "client"
open(options["--pidfile"], "w").write(str(os.getpid()))
socketserver.UnixStreamServer(options["--host"].removeprefix("unix://"), Handler).serve_forever()
"""


class Machine:
    """A clone of the scripts and locks, and programs of its own first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "clone"
        self.calls = folder / "calls"
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.calls.write_text("")
        for name in ("ci", "docker/locks", "docker/vendor"):
            shutil.copytree(
                ROOT / name,
                self.clone / name,
                ignore=shutil.ignore_patterns("__pycache__", "*.whl"),
            )
        (folder / "os-release").write_text(DEBIAN)
        self.environment = {
            "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder),
            "CALLS": str(self.calls),
            "SMP_OS_RELEASE": str(folder / "os-release"),
            "SMP_ENGINE_ROOT": str(folder / "engine"),
            "SMP_ENGINE_RUN": str(folder / "run"),
            "APT_CONFIG": str(folder / "apt.conf"),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": "http://127.0.0.1:9/",  # where nothing listens
        }
        # Whoever runs the test: root, on a machine that lacks every package.
        self.program("id", 'if [[ $* == --user ]]; then echo 0; else exec /usr/bin/id "$@"; fi')
        self.program("dpkg-query", "exit 1")
        self.program("dpkg", "exit 0")
        self.program("sudo", "exit 1")
        self.program("mmdebstrap", "exit 1")
        self.program("apt-get", '[[ $1 != indextargets ]] || exec /usr/bin/apt-get "$@"')
        self.mirror("http://127.0.0.1:9/")

    def program(self, name: str, does: str) -> None:
        path = self.programs / name
        path.write_text(does if does.startswith("#!") else f"{NOTED}{does}\n")
        path.chmod(0o755)

    def mirror(self, address: str) -> None:
        sources = self.folder / "sources.list"
        sources.write_text(f"deb {address} bookworm main\n")
        (self.folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "/dev/null";\n'
            'Acquire::http::Proxy "DIRECT";\n'
        )

    def run(self, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """From another folder, with nobody to ask for a password."""
        command = [*prefix, str(self.clone / words[0]), *words[1:]]
        return subprocess.run(
            command,
            cwd="/",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            start_new_session=True,
        )

    def holds(self, name: str) -> None:
        """What an earlier command would have left in the clone."""
        path = self.clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def state(self) -> dict[str, int]:
        """All files but the notes of calls, with the time of their last change."""
        left_out = {self.calls, self.folder}
        paths = [path for path in self.folder.rglob("*") if path not in left_out]
        return {str(path): path.lstat().st_mtime_ns for path in paths}

    def changing_calls(self) -> list[str]:
        """Calls of programs that could change the machine."""
        harmless = ("id ", "dpkg-query ", "uname ", "sudo --non-interactive true")
        lines = self.calls.read_text().splitlines()
        return [
            line
            for line in lines
            if not line.startswith(harmless) and not line.startswith("apt-get indextargets")
        ]

    def refuses(self, *words: str, prefix: tuple[str, ...] = ()) -> str:
        """The one sentence that says why, after which nothing has changed."""
        before = self.state()

        ended = self.run(*words, prefix=prefix)

        assert ended.returncode == 1, ended.stderr
        assert ended.stdout == ""
        assert ended.stderr.startswith(f"{words[0]}: "), ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr
        assert self.changing_calls() == []
        assert self.state() == before
        return ended.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def engine_answers() -> bool:
    """Docker's usual place cannot be moved: where an engine answers there, none is started."""
    found = subprocess.run(
        ["docker", "--host", "unix:///var/run/docker.sock", "version"],
        capture_output=True,
        check=False,
    )
    return found.returncode == 0


without_engine = pytest.mark.skipif(
    shutil.which("docker") is not None and engine_answers(),
    reason="a Docker engine runs on this machine, and the scripts would use it",
)


def in_namespace(*lines: str) -> tuple[str, ...]:
    """Words before a command that runs after these lines, where their mounts are its own."""
    words = ("unshare", "--user", "--map-root-user", "--mount", "bash", "-ec")
    prefix = (*words, f'{"; ".join(lines)}; exec "$@"', "bash")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount in a namespace of its own")
    return prefix


def read_only(folder: Path) -> tuple[str, ...]:
    """A prefix for a command that cannot write there, though root may everywhere else."""
    return in_namespace(f"mount --bind {folder} {folder}", f"mount -o remount,bind,ro {folder}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_answers_help_from_another_folder(script: str) -> None:
    ended = subprocess.run(
        [ROOT / "ci" / script, "--help"], cwd="/", capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert script.split(".", maxsplit=1)[0] in ended.stdout or "usage" in ended.stdout.lower()
    assert ended.stderr == ""


REFUSING = [
    ("ci/setup",),
    ("ci/setup", "--tests", "--images"),
    ("ci/quickstart",),
    ("ci/build",),
    ("ci/test",),
    ("ci/test", "--all"),
    ("ci/docs",),
    ("ci/docs", "--picture"),
    ("ci/peers",),
    ("ci/fuzz", "1"),
    pytest.param(("ci/engine", "start"), marks=without_engine),
    pytest.param(("ci/image",), marks=without_engine),
    pytest.param(("ci/vendor",), marks=without_engine),
]


@pytest.mark.parametrize("words", REFUSING, ids=" ".join)
def test_another_distribution_is_refused(machine: Machine, words: tuple[str, ...]) -> None:
    (machine.folder / "os-release").write_text(UBUNTU)
    if words == ("ci/vendor",):  # ci/image, which it calls, says so
        words_of_refusal = machine.run(*words).stderr
    else:
        words_of_refusal = machine.refuses(*words)

    assert "ubuntu 24.04, not Debian 12" in words_of_refusal
    assert "do it in a container" in words_of_refusal


def test_another_release_of_debian_is_refused(machine: Machine) -> None:
    (machine.folder / "os-release").write_text('ID=debian\nVERSION_ID="13"\n')

    assert "debian 13, not Debian 12" in machine.refuses("ci/setup")


PROCESSOR = ["ci/setup", "ci/quickstart", "ci/build", "ci/test", "ci/docs", "ci/image"]


@pytest.mark.parametrize("script", PROCESSOR)
def test_another_processor_is_refused(machine: Machine, script: str) -> None:
    machine.program("uname", "echo aarch64")

    assert "this machine is aarch64" in machine.refuses(script)


def test_a_user_who_cannot_become_root_is_refused(machine: Machine) -> None:
    machine.program("id", 'if [[ $* == --user ]]; then echo 1000; else exec /usr/bin/id "$@"; fi')

    assert "sudo does not let" in machine.refuses("ci/setup")


def test_a_mirror_that_does_not_answer_is_refused(machine: Machine) -> None:
    said = machine.refuses("ci/setup")

    assert "Debian's mirror cannot be reached (Could not connect to 127.0.0.1:9" in said


def test_a_machine_without_sources_is_refused(machine: Machine) -> None:
    (machine.folder / "sources.list").write_text("")

    assert "apt knows no source of packages" in machine.refuses("ci/setup")


DISK = ["ci/setup", "ci/quickstart", "ci/build", "ci/test", "ci/docs", "ci/peers", "ci/vendor"]


@pytest.mark.parametrize("script", DISK)
def test_a_disk_that_is_too_small_is_refused(machine: Machine, script: str) -> None:
    prefix = in_namespace(
        "mount -t tmpfs -o size=20m tmpfs /mnt",
        f"cp -r {machine.clone}/* /mnt",
        f"mount --bind /mnt {machine.clone}",
    )

    assert "MB are free in the file system" in machine.refuses(script, prefix=prefix)


@pytest.mark.parametrize("script", [*DISK, "ci/image", "ci/fuzz"])
def test_a_folder_that_cannot_be_written_is_refused(machine: Machine, script: str) -> None:
    said = machine.refuses(script, prefix=read_only(machine.clone))

    folder = "docker/vendor" if script == "ci/vendor" else str(machine.clone)
    assert f"cannot write to {folder}; give that user the folder" in said


@pytest.mark.parametrize("program", ["cmake", "ninja", "g++"])
def test_a_build_without_its_programs_names_ci_setup(machine: Machine, program: str) -> None:
    machine.holds(".venv/locks.sha256")
    others = machine.folder / "others"
    others.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name != program:
            (others / path.name).symlink_to(path)
    machine.environment["PATH"] = f"{machine.programs}:{others}"
    for name in {"cmake", "ninja", "g++"} - {program}:
        machine.program(name, "exit 1")

    assert machine.refuses("ci/build") == (
        f"ci/build: there is no {program}; run ci/setup, which installs it\n"
    )


class Packages(BaseHTTPRequestHandler):
    """A mirror as far as its answer to the first question."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Packages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


PIP_WHEELS = list(Path("/usr/share/python-wheels").glob("pip-*.whl"))


@pytest.mark.skipif(not PIP_WHEELS, reason="there is no wheel of pip, as python3.11-venv brings it")
@pytest.mark.parametrize("script", ["ci/setup", "ci/docs", "ci/peers"])
def test_an_index_that_does_not_answer_is_refused(
    machine: Machine, mirror: str, script: str
) -> None:
    machine.mirror(mirror)
    if script != "ci/setup":
        machine.holds(".venv/locks.sha256")
        machine.holds("build/peers/left")

    said = machine.refuses(script)

    assert "index of Python packages cannot be reached (http://127.0.0.1:9/filelock/: " in said
    assert "Connection refused)" in said


@pytest.fixture
def engine(machine: Machine) -> Iterator[Machine]:
    """A machine where an engine runs that has no image."""
    if shutil.which("docker") is None:
        pytest.skip("there is no docker; ci/setup --images installs it")
    machine.program("dockerd", FAKE_ENGINE)
    pid, host = machine.folder / "docker.pid", f"unix://{machine.folder}/docker.sock"
    options = ("--pidfile", str(pid), "--host", host)
    with subprocess.Popen([machine.programs / "dockerd", *options]) as running:
        machine.environment["DOCKER_HOST"] = host
        while not (machine.folder / "docker.sock").exists():
            assert running.poll() is None
        yield machine
        running.kill()


def test_an_image_from_nothing_takes_a_network(engine: Machine, mirror: str) -> None:
    assert "Debian's mirror cannot be reached" in engine.refuses("ci/image")

    engine.mirror(mirror)
    if PIP_WHEELS:
        assert "index of Python packages cannot be reached" in engine.refuses("ci/image")


def test_an_image_takes_a_folder_for_its_documents(engine: Machine) -> None:
    said = engine.refuses("ci/image", prefix=read_only(engine.clone))

    assert f"cannot write to {engine.clone}" in said


@without_engine
def test_installing_docker_leaves_stdout_to_the_engine(machine: Machine, mirror: str) -> None:
    machine.mirror(mirror)
    machine.program("apt-get", '[[ $1 != indextargets ]] || exec /usr/bin/apt-get "$@"\necho Get:1')
    machine.program("dockerd", FAKE_ENGINE)
    if shutil.which("docker") is None:
        machine.program("docker", "exit 0")
    pid = machine.folder / "run" / "docker.pid"

    try:
        ended = machine.run("ci/engine", "start")
        asked = machine.run("ci/engine", "env")
    finally:
        if pid.exists():
            os.kill(int(pid.read_text()), 9)

    expected = f"DOCKER_HOST=unix://{machine.folder}/run/docker.sock\n"
    assert ended.stdout == expected, ended.stderr
    assert "installing 3 Debian packages" in ended.stderr
    assert any(call.startswith("apt-get --quiet --yes") for call in machine.changing_calls())
    assert asked.stdout == expected
    assert asked.stderr == ""


def source(machine: Machine, line: str) -> subprocess.CompletedProcess[str]:
    script = machine.clone / "ci" / "line"
    script.write_text(
        f'#!/bin/bash\nset -euo pipefail\nsource "$(dirname "$0")/machine.sh"\n{line}\n'
    )
    script.chmod(0o755)
    return machine.run("ci/line")


def test_a_quiet_step_says_every_few_seconds_how_far_it_is(machine: Machine) -> None:
    ended = source(machine, "step() { echo half done; sleep 7; }; quietly 'a step' /etc step")

    assert ended.returncode == 0
    assert ended.stdout == ""
    assert ended.stderr.startswith("  a step: 5 s, ")
    assert ended.stderr.endswith(" MB, half done\n")


def test_a_quiet_step_that_fails_shows_what_it_said(machine: Machine) -> None:
    ended = source(machine, "step() { echo the reason; return 7; }; quietly 'a step' '' step")

    assert ended.returncode == 7
    assert ended.stdout == ""
    assert ended.stderr == "a step: failed\nthe reason\n"


def test_a_step_aloud_speaks_on_stderr_and_keeps_its_exit_code(machine: Machine) -> None:
    ended = source(
        machine, "step() { echo one; echo two >&2; printf three; return 7; }; aloud it step"
    )

    assert (ended.returncode, ended.stdout) == (7, "")
    assert ended.stderr == "one\ntwo\nthree\n"


def test_folders_that_share_a_disk_are_added_up(machine: Machine) -> None:
    free = shutil.disk_usage(machine.folder).free // 1_000_000
    half = free * 2 // 3

    one = source(machine, f"require_space it {machine.folder} {half}")
    two = source(machine, f"require_space it {machine.folder} {half} {machine.folder}/none {half}")

    assert one.returncode == 0, one.stderr
    assert two.returncode == 1
    assert f"it takes {2 * half}" in two.stderr


def test_fresh_runs_the_commands_in_the_order_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    tested = (ROOT / "ci" / "fresh").read_text()
    commands = ["    ci/quickstart", "    ci/test", "    ci/image", "    docker/cluster run"]

    places = [readme.index(command) for command in commands]
    names = [tested.index(f'": "{command.strip()}') for command in commands]

    assert places == sorted(places)
    assert names == sorted(names)
