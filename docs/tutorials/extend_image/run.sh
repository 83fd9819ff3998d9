#!/usr/bin/env bash
# The commands of the tutorial "Extend the image", in its order. Needs the image smp-train:dev.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [context]
mkdir -p build/extend_image
cp docs/tutorials/extend_image/Dockerfile docs/tutorials/first_job/train.py build/extend_image
python -m pip download --quiet --dest build/extend_image/wheels scikit-learn==1.9.1
# [end context]

# [build]
docker build --network none --build-arg IMAGE="${IMAGE:-smp-train:dev}" \
  --tag "${TAG:-digits-train}" build/extend_image
# [end build]

# [run]
docker/cluster run --image "${TAG:-digits-train}" --hosts 1 --processes 2 --program train.py \
  --mp-parameters '{"pipeline_parallel_degree": 2, "microbatches": 4}'
# [end run]
