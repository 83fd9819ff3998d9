#!/usr/bin/env bash
# The commands of the tutorial "Your first job", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [alone]
python docs/tutorials/first_job/train.py
# [end alone]

# [mpirun]
SM_HP_MP_PARAMETERS='{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/first_job/train.py
# [end mpirun]

# [tree]
train --make-tree build/first_job --replace --code docs/tutorials/first_job --program train.py \
  --processes 4 --mp-parameters '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
# [end tree]

# [plan]
SAGEMAKER_BASE_DIR=$PWD/build/first_job train --plan
# [end plan]

# [train]
SAGEMAKER_BASE_DIR=$PWD/build/first_job train
# [end train]

# [marker]
ls build/first_job/output
# [end marker]
