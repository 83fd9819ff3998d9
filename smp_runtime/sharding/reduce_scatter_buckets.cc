// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/reduce_scatter_buckets.h"

#include <utility>

#include <ATen/ops/cat.h>

namespace smp::sharding {

ReduceScatterBuckets::ReduceScatterBuckets(ShardExchange& exchange, std::int64_t bucket,
                                           SizeOf size_of, Arrive arrive)
    : exchange_(exchange),
      bucket_(bucket),
      size_of_(std::move(size_of)),
      arrive_(std::move(arrive)) {}

void ReduceScatterBuckets::add(int unit, at::Tensor flat) {
  if (!filling_.empty() && filling_.back().flat.scalar_type() != flat.scalar_type()) launch();
  elements_ += flat.numel();
  filling_.push_back({.unit = unit, .flat = std::move(flat)});
  if (elements_ >= bucket_) launch();
}

void ReduceScatterBuckets::flush() {
  launch();
  finish();
}

void ReduceScatterBuckets::launch() {
  if (filling_.empty()) return;
  // In front of the next: an exchange takes memory for what it sends and for what it receives.
  finish();
  const std::int64_t degree = exchange_.degree();
  Bucket bucket;
  std::vector<at::Tensor> rows;  // each [degree, shard]: row i is for rank i
  for (const Contribution& contribution : filling_) {
    bucket.units.push_back(contribution.unit);
    rows.push_back(contribution.flat.view({degree, -1}));
  }
  const at::Tensor sent = rows.size() == 1 ? rows[0] : at::cat(rows, 1);
  bucket.pending = exchange_.start_reduce(bucket.units, sent, size_of_(bucket.units[0]).master);
  filling_.clear();
  elements_ = 0;
  inflight_ = std::move(bucket);
}

void ReduceScatterBuckets::finish() {
  if (!inflight_) return;
  Bucket bucket = std::move(*std::exchange(inflight_, std::nullopt));
  const at::Tensor sum = exchange_.wait(bucket.pending);
  std::int64_t offset = 0;
  for (const int unit : bucket.units) {
    const std::int64_t shard = size_of_(unit).shard;
    arrive_(unit, sum.narrow(0, offset, shard));
    offset += shard;
  }
}

}  // namespace smp::sharding
