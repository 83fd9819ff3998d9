#!/usr/bin/env bash
# root_layout.sh: the paths that jobs, the SageMaker SDK and scripts for other images expect.
set -euo pipefail

# A link in place of a file or a link, but never inside a folder that a link names.
link() { ln --symbolic --force --no-target-directory "$1" "$2"; }

main() {
  mkdir --parents /opt/ml/input/{config,data} /opt/ml/{code,model,checkpoints} /opt/ml/output/data \
    /run/sshd
  # Another base may have these two names for its own Python and CUDA.
  link /opt/venv/bin/python /usr/local/bin/python
  link /opt/venv/lib/python3.11/site-packages/nvidia/cu13 /usr/local/cuda
  # Custom MPI options in published scripts name this prefix.
  mkdir --parents /opt/amazon/openmpi/bin
  ln --symbolic --force /usr/bin/{mpirun,mpiexec,orted,ompi_info} /opt/amazon/openmpi/bin/
  link "$(dirname "$(readlink --canonicalize /usr/lib/*/libmpi.so.40)")" /opt/amazon/openmpi/lib
  # Pods of Kubernetes' TrainJob with MPI run as user 1000, and ssh works for no user without a name.
  # Not by useradd, which writes down the day.
  echo 'mpiuser:*:1000:1000::/home/mpiuser:/bin/bash' >>/etc/passwd
  echo 'mpiuser:*:1000:' >>/etc/group
  install --directory --owner 1000 --group 1000 /home/mpiuser
  # With EFA the loader's list changes (docker/efa/install.sh).
  if [[ -e /etc/ld.so.conf.d/000_efa.conf ]]; then
    ldconfig
    rm --force /var/cache/ldconfig/aux-cache
  fi
}

main "$@"
