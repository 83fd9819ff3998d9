#!/usr/bin/env bash
# root_layout.sh: the paths that jobs, the SageMaker SDK and scripts for other images expect.
set -euo pipefail

main() {
  mkdir --parents /opt/ml/input/{config,data} /opt/ml/{code,model,checkpoints} /opt/ml/output/data \
    /run/sshd
  ln --symbolic /opt/venv/bin/python /usr/local/bin/python
  ln --symbolic /opt/venv/lib/python3.11/site-packages/nvidia/cu13 /usr/local/cuda
  # Custom MPI options in published scripts name this prefix.
  mkdir --parents /opt/amazon/openmpi/bin
  ln --symbolic /usr/bin/{mpirun,mpiexec,orted,ompi_info} /opt/amazon/openmpi/bin/
  ln --symbolic "$(dirname "$(readlink --canonicalize /usr/lib/*/libmpi.so.40)")" \
    /opt/amazon/openmpi/lib
}

main "$@"
