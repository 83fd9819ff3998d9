#!/usr/bin/env bash
# The commands of the tutorial "Transformers' Trainer", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [alone]
export OMP_NUM_THREADS=1
python docs/tutorials/trainer/train.py --out build/trainer_alone
# [end alone]

# [pipeline]
SM_HP_MP_PARAMETERS='{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}' \
  mpirun --allow-run-as-root --oversubscribe -np 2 \
  python docs/tutorials/trainer/train.py --out build/trainer
# [end pipeline]

# [resume]
SM_HP_MP_PARAMETERS='{"tensor_parallel_degree": 2, "ddp": true}' \
  mpirun --allow-run-as-root --oversubscribe -np 2 \
  python docs/tutorials/trainer/train.py --out build/trainer_split --resume build/trainer/checkpoint-8
# [end resume]

# [read]
python - <<'END'
from transformers import GPT2LMHeadModel
model = GPT2LMHeadModel.from_pretrained("build/trainer_split/final")
print("plain Transformers reads", model.num_parameters(), "parameters")
END
# [end read]
