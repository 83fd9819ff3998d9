# SPDX-License-Identifier: Apache-2.0
"""An image that is not ours, as a root file system: see `image`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from fresh_root import configure, sources
from pairs import Pair, environment, interpreter, uv

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "stranger"
REFERENCE = ROOT / "tests" / "differential" / "reference.txt"
# Another than .venv's, and one that the group `versions` has made an environment for.
PAIR = Pair("2.10", "3.10")
# As in Amazon's images for GPUs: what their PATH and LD_LIBRARY_PATH name.
MPI, EFA = "/opt/amazon/openmpi", "/opt/amazon/efa"
VARIABLES = {
    "PATH": f"/opt/venv/bin:{MPI}/bin:{EFA}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LD_LIBRARY_PATH": f"{MPI}/lib:{EFA}/lib",
    "OPAL_PREFIX": MPI,  # Debian's Open MPI, which stands for theirs, was built for /usr
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}
PACKAGES = "ca-certificates,openmpi-bin,libfabric1,libfabric-bin,openssh-client,openssh-server,curl"
# Moves Open MPI and libfabric to where those images have them, and looks that nothing is left.
MOVE = f"""
set -e
lib=/usr/lib/x86_64-linux-gnu
mkdir -p {MPI}/bin {MPI}/lib {MPI}/share {MPI}/etc {EFA}/lib {EFA}/bin
for program in mpirun orterun orted orte-clean ompi_info prte prted prterun; do
  for file in /usr/bin/$program /usr/bin/$program.openmpi; do
    [ ! -e $file ] || cp -L $file {MPI}/bin/$program
  done
done
ln -sf mpirun {MPI}/bin/mpiexec
mkdir -p {MPI}/lib/x86_64-linux-gnu
mv $lib/openmpi {MPI}/lib/x86_64-linux-gnu/openmpi
cp -a $lib/libmpi.so* $lib/libopen-*.so* $lib/libmpi_*.so* {MPI}/lib/ 2>/dev/null || true
cp -rL /usr/share/openmpi {MPI}/share/openmpi
cp -rL /etc/openmpi {MPI}/etc/openmpi
mv $lib/libfabric.so* {EFA}/lib/
mv /usr/bin/fi_info {EFA}/bin/
rm -f $lib/libmpi.so* $lib/libopen-*.so* $lib/libmpi_*.so* /usr/bin/mpirun* /usr/bin/orte*
ldconfig
"""
# Runs in namespaces of its own: ENV_FOLDER PYTHON_FOLDER JOB COMMAND...
ENTER = f"""
set -e
root={FOLDER}/root environment=$1 python=$2 job=$3 && shift 3
mount --make-rprivate /
ip link set lo up
ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up
ip address add 10.7.0.1/24 dev eth0
mount --bind "$root" "$root"
mkdir -p "$root$python" "$root/opt/venv" "$root/opt/ml"
mount --bind -o ro "$python" "$root$python"
mount --bind "$environment" "$root/opt/venv"
mount --bind "$job" "$root/opt/ml"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
exec chroot "$root" "$@"
"""
SPACES = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]


def make_root(root: Path) -> None:
    if (root / "opt/amazon/efa/lib").exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root]
    subprocess.run([*command, sources("bookworm")], check=True, capture_output=True, timeout=900)
    configure(root)
    subprocess.run(["chroot", root, "sh", "-c", MOVE], check=True, timeout=120)


@pytest.fixture(scope="session")
def image() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`image(job, words, **variables)` runs a command in an image that is not ours, with the folder
    `job` as /opt/ml.

    A minimal Debian 12 without Python, compiler or CMake; /opt/venv holds another Python and
    another torch than .venv's, our wheel and Amazon's launcher; Open MPI and libfabric are below
    /opt/amazon.
    """
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("making a root file system takes root and mmdebstrap (ci/setup --images)")
    make_root(FOLDER / "root")
    words = [ROOT / "ci" / "wheel", "--torch", PAIR.torch, "--python", PAIR.python]
    wheel = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    python = environment(PAIR)
    uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--reinstall", ROOT / wheel)
    amazons = re.search(r"^sagemaker[-_]training==\S+", REFERENCE.read_text(), re.MULTILINE)[0]
    uv("pip", "install", "--quiet", "--python", python, amazons, "mpi4py")
    home = Path(interpreter(f"python{PAIR.python}")).resolve().parents[1]

    def run(job: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        enter = ["bash", "-c", ENTER, "enter", PAIR.folder, home, job, *command]
        return subprocess.run(
            [*SPACES, *enter],
            env=VARIABLES | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
