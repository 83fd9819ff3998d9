# SPDX-License-Identifier: Apache-2.0
"""A case: one job tree, one environment, and the programs on PATH. Both launchers run on it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STUBS = Path(__file__).with_name("stubs")
PYTORCH = "sagemaker_pytorch_container.training:main"
HOST = "localhost"  # a host whose name has an address everywhere
INTERFACE = "lo"  # an interface that every machine has
RECORDERS = ("mpirun", "ssh", "torchrun", "neuron_parallel_compile")
SHELL_SCRIPT = '#!/bin/sh\nexec /usr/bin/python3 -SE "$SMP_RECORDER" "$0" "$@"\n'


@dataclass
class Case:
    """One job. The defaults are a PyTorch job of one plain process on one host."""

    name: str
    hyperparameters: dict[str, Any] | str = field(default_factory=dict)  # str: the file's text
    program: str | None = "train.py"  # None: sagemaker_program is not sent
    files: dict[str, str] = field(default_factory=dict)  # more files in the code folder
    hosts: tuple[str, ...] = (HOST,)
    current_host: str | None = None  # None: the first
    resources: dict[str, Any] = field(default_factory=dict)  # added to resourceconfig.json
    channels: dict[str, Any] | str | None = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    module: str | None = PYTORCH  # None: the generic flow
    gpus: int = 0
    neurons: str | None = None  # output of neuron-ls; None: it is not there
    tools: tuple[str, ...] = ()  # smddprun, smddpmprun
    torch: bool = True
    mpi4py: bool = True
    missing: tuple[str, ...] = ()  # files of the tree that are taken away
    raw_resources: str | None = None  # resourceconfig.json's text
    script: str = ""  # action of the user's script, see stubs/record.py
    planned_only: bool = False  # our side says what it would do: the job needs other hosts

    def make_tree(self, base: Path) -> None:
        """Writes <base> anew."""
        shutil.rmtree(base, ignore_errors=True)
        config = base / "input" / "config"
        for folder in (config, base / "code", base / "model", base / "output" / "data"):
            folder.mkdir(parents=True)
        (config / "hyperparameters.json").write_text(self.hyperparameters_text())
        (config / "resourceconfig.json").write_text(self.resources_text())
        if self.channels is not None:
            text = self.channels if isinstance(self.channels, str) else json.dumps(self.channels)
            (config / "inputdataconfig.json").write_text(text)
        recorder = (STUBS / "record.py").read_text()
        files = {"train.py": recorder, "run.sh": SHELL_SCRIPT, **self.files}
        for name, text in files.items():
            (base / "code" / name).parent.mkdir(parents=True, exist_ok=True)
            (base / "code" / name).write_text(recorder if text == "RECORDER" else text)
        for name in self.missing:
            (base / name).unlink()

    def hyperparameters_text(self) -> str:
        if isinstance(self.hyperparameters, str):
            return self.hyperparameters
        sent = dict(self.hyperparameters)
        if self.program is not None:
            sent.setdefault("sagemaker_program", json.dumps(self.program))
        return json.dumps(sent)

    def resources_text(self) -> str:
        if self.raw_resources is not None:
            return self.raw_resources
        config = {
            "current_host": self.current_host or self.hosts[0],
            "hosts": list(self.hosts),
            "network_interface_name": INTERFACE,
            **self.resources,
        }
        return json.dumps({key: value for key, value in config.items() if value is not None})

    def make_programs(self, folder: Path) -> None:
        """The stubs that stand first on PATH."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in (*RECORDERS, *self.tools):
            (folder / name).symlink_to(STUBS / "record.py")
        self.add_tool(folder / "nvidia-smi", "GPU 0: a stub\n" * self.gpus)
        if self.neurons is not None:
            self.add_tool(folder / "neuron-ls", self.neurons)

    @staticmethod
    def add_tool(path: Path, output: str) -> None:
        text = path.with_name(f".{path.name}.output")
        text.write_text(output)
        path.write_text(f'#!/bin/sh\ncat "{text}"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def job_environment(self, folder: Path, python: Path) -> dict[str, str]:
        """Environment that both launchers inherit; nothing of this machine's user or of pytest."""
        packages = [STUBS / "pip", STUBS / "framework"]
        packages += [STUBS / "mpi4py"] if self.mpi4py else []
        packages += [STUBS / "torch"] if self.torch else []
        result = {
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "PATH": f"{folder / 'bin'}:{python.parent}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join(str(package) for package in packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "SAGEMAKER_BASE_DIR": str(folder / "opt_ml"),
            "SM_STUDIO_LOCAL_MODE": "true",  # no wait for names of hosts that are not there
            "SMP_RECORDER": str(STUBS / "record.py"),
            "SMP_STUB_RECORDS": str(folder / "records"),
            "SMP_SCRIPT": self.script,
        }
        if self.module is not None:
            result["SAGEMAKER_TRAINING_MODULE"] = self.module
        return result | self.environment


def clean_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path
