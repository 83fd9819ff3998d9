#!/usr/bin/env bash
# The commands of the tutorial "Accelerate and Lightning", in its order.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [install]
/usr/bin/python3.11 -m venv build/frameworks
python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' \
  >build/frameworks/lib/python3.11/site-packages/ours.pth
build/frameworks/bin/pip install --quiet --disable-pip-version-check accelerate lightning==2.6.6
# [end install]

# [accelerate]
export OMP_NUM_THREADS=1
build/frameworks/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 \
  docs/tutorials/frameworks/accelerate_digits.py
# [end accelerate]

# [lightning]
build/frameworks/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 \
  docs/tutorials/frameworks/lightning_digits.py ddp
build/frameworks/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 \
  docs/tutorials/frameworks/lightning_digits.py fsdp2
# [end lightning]
