#!/usr/bin/env bash
# The commands of the tutorial "Choose degrees before the job", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [job]
train --make-tree build/degrees --replace --code docs/tutorials/choose_degrees --program train.py \
  --instance-type ml.p4d.24xlarge --processes 8
SAGEMAKER_BASE_DIR=$PWD/build/degrees train --suggest
# [end job]

# [smaller]
SAGEMAKER_BASE_DIR=$PWD/build/degrees train --suggest --hosts 1 --instance-type ml.g4dn.xlarge ||
  echo "nothing fits"
# [end smaller]

# [explain]
SAGEMAKER_BASE_DIR=$PWD/build/degrees train --suggest \
  --explain '{"pipeline_parallel_degree": 4, "microbatches": 8, "ddp": true, "bf16": true}'
# [end explain]

# [write]
SAGEMAKER_BASE_DIR=$PWD/build/degrees train --suggest --write --svg build/degrees/candidates.svg
SAGEMAKER_BASE_DIR=$PWD/build/degrees train --plan
# [end write]
