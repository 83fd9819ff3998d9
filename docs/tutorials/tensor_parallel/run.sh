#!/usr/bin/env bash
# The commands of the tutorial "Tensor parallelism", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [data]
export OMP_NUM_THREADS=1
mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/tensor_parallel/train.py
# [end data]

# [tensor]
SM_HP_MP_PARAMETERS='{"tensor_parallel_degree": 2}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/tensor_parallel/train.py
# [end tensor]

# [pipeline]
SM_HP_MP_PARAMETERS='{"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "microbatches": 4}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/tensor_parallel/train.py
# [end pipeline]

# [evaluate]
python docs/tutorials/tensor_parallel/evaluate.py
# [end evaluate]
