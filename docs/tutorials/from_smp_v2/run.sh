#!/usr/bin/env bash
# The commands of the tutorial "From SMP v2 to here", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [tree]
train --make-tree build/from_v2 --replace --code docs/tutorials/from_smp_v2 --program v2.py \
  --hyperparameter sagemaker_torch_distributed_enabled=true \
  --hyperparameter sagemaker_mpi_num_of_processes_per_host=4 \
  --mp-parameters '{"hybrid_shard_degree": 2}'
# [end tree]

# [train]
export SMP_CPU=1
SAGEMAKER_BASE_DIR=$PWD/build/from_v2 train
# [end train]

# [made]
ls build/from_v2/checkpoints build/from_v2/model
# [end made]

# [resume]
torchrun --standalone --nproc-per-node 2 docs/tutorials/from_smp_v2/v2.py \
  --resume build/from_v2/checkpoints/40steps --steps 60
# [end resume]

# [fsdp2]
torchrun --standalone --nproc-per-node 2 docs/tutorials/from_smp_v2/fsdp2.py \
  build/from_v2/model build/from_v2/checkpoints/60steps
# [end fsdp2]

# [v1]
export FOLDER=$PWD/build/from_v2/of_v1
mpirun --allow-run-as-root --oversubscribe -np 2 python docs/tutorials/from_smp_v2/v1.py
# [end v1]

# [convert]
python -m smdistributed.modelparallel.checkpoint convert "$FOLDER" build/from_v2/start --to v2
# [end convert]

# [begin]
torchrun --standalone --nproc-per-node 2 docs/tutorials/from_smp_v2/v2.py --steps 50 \
  --pretrained build/from_v2/start/pretrained --resume build/from_v2/start/sharded
# [end begin]

# [typo]
SM_HP_MP_PARAMETERS='{"hybrid_shard_degre": 2}' \
  torchrun --standalone --nproc-per-node 1 docs/tutorials/from_smp_v2/v2.py 2>&1 |
  grep --only-matching --max-count=1 "SMPConfigError: .*" || true
# [end typo]
