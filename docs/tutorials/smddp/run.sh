#!/usr/bin/env bash
# The commands of the tutorial "smddp in DDP and FSDP", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [ddp]
export OMP_NUM_THREADS=1
mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/smddp/ddp.py
# [end ddp]

# [fsdp]
torchrun --standalone --nproc-per-node 4 docs/tutorials/smddp/fsdp.py
# [end fsdp]

# [job]
train --make-tree build/smddp --replace --code docs/tutorials/smddp --program ddp.py \
  --hyperparameter sagemaker_distributed_dataparallel_enabled=true \
  --hyperparameter sagemaker_mpi_num_of_processes_per_host=4
SAGEMAKER_BASE_DIR=$PWD/build/smddp train
# [end job]
