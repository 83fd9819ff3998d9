#!/usr/bin/env bash
# The commands of the tutorial "Train in C++", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [install]
cmake --install build/release --component cpp --prefix build/cpp/smp
# [end install]

# [build]
cmake -S docs/tutorials/cpp -B build/cpp/program -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$PWD/build/cpp/smp"
cmake --build build/cpp/program
# [end build]

# [alone]
rm --recursive --force build/cpp/alone
SAGEMAKER_BASE_DIR=$PWD/build/cpp/alone build/cpp/program/spirals
# [end alone]

# [tree]
train --make-tree build/cpp/job --replace --code build/cpp/program --program spirals \
  --hyperparameter epochs=5 --processes 4 \
  --mp-parameters '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
# [end tree]

# [plan]
SAGEMAKER_BASE_DIR=$PWD/build/cpp/job train --plan
# [end plan]

# [train]
SAGEMAKER_BASE_DIR=$PWD/build/cpp/job train
# [end train]

# [resume]
train --make-tree build/cpp/resumed --replace --code build/cpp/program --program spirals \
  --processes 2 --mp-parameters '{"microbatches": 2, "ddp": true}'
cp --recursive build/cpp/job/checkpoints build/cpp/resumed
SAGEMAKER_BASE_DIR=$PWD/build/cpp/resumed train
# [end resume]

# [look]
ls build/cpp/resumed/model build/cpp/resumed/output/data
# [end look]
