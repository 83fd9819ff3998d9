#!/usr/bin/env bash
# The commands of the tutorial "Sharded training", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [replicated]
export OMP_NUM_THREADS=1
SM_HP_MP_PARAMETERS='{"ddp": true}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 python docs/tutorials/sharded_training/train.py
# [end replicated]

# [sharded]
SM_HP_MP_PARAMETERS='{"ddp": true, "sharded_data_parallel_degree": 4,
                       "sdp_param_persistence_threshold": 2000, "sdp_gradient_clipping": 0}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 \
  python docs/tutorials/sharded_training/train.py --save build/sharded
# [end sharded]

# [groups]
SM_HP_MP_PARAMETERS='{"ddp": true, "sharded_data_parallel_degree": 2,
                       "sdp_param_persistence_threshold": 2000, "sdp_gradient_clipping": 0}' \
  mpirun --allow-run-as-root --oversubscribe -np 4 \
  python docs/tutorials/sharded_training/train.py --resume build/sharded --save build/sharded
# [end groups]

# [whole]
python docs/tutorials/sharded_training/whole.py build/sharded
# [end whole]
