#!/usr/bin/env bash
# The commands of the tutorial "From SMP v1 to here", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [data]
mkdir -p build/digits
cp "$(python -c 'import sklearn; print(sklearn.__path__[0])')/datasets/data/digits.csv.gz" \
  build/digits
# [end data]

# [tree]
train --make-tree build/from_v1 --replace --code docs/tutorials/from_smp_v1 --program train.py \
  --channel train=build/digits --hyperparameter epochs=4 --processes 4 \
  --mp-parameters '{"partitions": 2, "microbatches": 4, "ddp": true, "pipeline": "interleaved",
                    "optimize": "speed", "placement_strategy": "spread"}'
# [end tree]

# [train]
SAGEMAKER_BASE_DIR=$PWD/build/from_v1 train
# [end train]

# [parts]
ls build/from_v1/model
# [end parts]

# [typo]
train --make-tree build/typo --replace --code docs/tutorials/from_smp_v1 --program train.py \
  --processes 4 --mp-parameters '{"partitons": 2}'
SAGEMAKER_BASE_DIR=$PWD/build/typo train --plan || echo "refused with exit code $?"
# [end typo]
