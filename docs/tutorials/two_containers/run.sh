#!/usr/bin/env bash
# The commands of the tutorial "Two containers", in its order. Needs the image smp-train:dev.
set -euo pipefail
cd "$(dirname "$0")/../../.."

# [data]
mkdir -p build/digits
cp "$(python -c 'import sklearn; print(sklearn.__path__[0])')/datasets/data/digits.csv.gz" \
  build/digits
# [end data]

# [job]
job=(
  --image "${IMAGE:-smp-train:dev}" --hosts 2 --processes 2
  --code examples/digits --program train.py --channel train=build/digits
  --mp-parameters '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
)
# [end job]

# [plan]
docker/cluster plan "${job[@]}"
# [end plan]

# [run]
docker/cluster run "${job[@]}" --tree build/two_containers
# [end run]

# [look]
ls build/two_containers/tree/algo-1/model build/two_containers/tree/algo-2/output
# [end look]

# [kill]
docker/cluster run "${job[@]}" --hyperparameter epochs=10000 --tree build/one_dies \
  --kill algo-2 --after 15s || echo "the job failed with exit code $?"
head --lines 5 build/one_dies/tree/algo-1/output/failure
# [end kill]
