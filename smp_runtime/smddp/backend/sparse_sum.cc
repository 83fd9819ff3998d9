// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/sparse_sum.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/backend/byte_view.h"

namespace smp::smddp {
namespace {

using collectives::CallSignature;
using collectives::Communicator;
using transport::WaitLimit;

template <typename T>
std::span<const std::byte> bytes_of_vector(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// Sizes that all ranks need to have in common, and each rank's number of entries, by a dense
/// all-gather.
struct Shape {
  std::vector<int64_t> common;   // sparse dims, then the sizes
  std::vector<int64_t> entries;  // by rank
};

Shape gather_shape(Communicator& group, const at::Tensor& own, const WaitLimit& limit) {
  std::vector<int64_t> mine{own._nnz(), own.sparse_dim()};
  mine.insert(mine.end(), own.sizes().begin(), own.sizes().end());
  const size_t length = mine.size();
  std::vector<int64_t> all(length * static_cast<size_t>(group.size()));
  std::vector<collectives::Bytes> parts;
  for (size_t rank = 0; rank < static_cast<size_t>(group.size()); ++rank) {
    parts.push_back(std::as_writable_bytes(std::span(all).subspan(rank * length, length)));
  }
  CallSignature call;
  call.type = ElementType::kInt64;
  call.elements = length;
  group.all_gather(call, bytes_of_vector(mine), parts, limit);
  Shape shape{.common = {mine.begin() + 1, mine.end()}, .entries = {}};
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto theirs = std::span(all).subspan(rank * length, length);
    if (!std::ranges::equal(theirs.subspan(1), shape.common)) {
      throw HostError("{}: rank {} has a sparse tensor of {}, this rank one of {}", limit.operation,
                      group.name(static_cast<int>(rank)), theirs.subspan(2),
                      std::span(shape.common).subspan(1));
    }
    shape.entries.push_back(theirs.front());
  }
  return shape;
}

/// All ranks' parts, which have `entries` along `dim`, joined there.
at::Tensor gather_parts(Communicator& group, const at::Tensor& own, int64_t dim,
                        const std::vector<int64_t>& entries, const WaitLimit& limit) {
  const at::Tensor source = own.contiguous();
  std::vector<at::Tensor> parts;
  std::vector<collectives::Bytes> outputs;
  for (const int64_t count : entries) {
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[static_cast<size_t>(dim)] = count;
    parts.push_back(at::empty(sizes, own.options()));
    outputs.push_back(bytes_out(parts.back()));
  }
  CallSignature call = header_of(source);
  call.elements = 0;  // ranks differ
  const std::vector<collectives::ConstBytes> inputs(parts.size(), bytes_in(source));
  group.all_to_all(call, inputs, outputs, limit);
  return at::cat(parts, dim);
}

/// The type in which entries of `type` are added up.
at::ScalarType wide(at::ScalarType type) {
  if (at::isReducedFloatingType(type)) return at::kFloat;
  return at::isIntegralType(type, /*includeBool=*/false) ? at::kLong : type;
}

}  // namespace

at::Tensor sparse_on_cpu(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return tensor.detach().coalesce().to(at::kCPU);
}

at::Tensor sum_of_sparse(Communicator& group, const at::Tensor& own, bool average,
                         const WaitLimit& limit) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Shape shape = gather_shape(group, own, limit);
  const at::Tensor indices = gather_parts(group, own._indices(), 1, shape.entries, limit);
  const at::Tensor values = gather_parts(group, own._values(), 0, shape.entries, limit);
  const at::Tensor entries = values.to(wide(own.scalar_type()));
  const at::Tensor sum =
      at::sparse_coo_tensor(indices, entries, own.sizes(), entries.options().layout(at::kSparse))
          .coalesce();
  if (average) {
    // Integers round towards zero, as those of dense tensors do.
    const bool truncates = at::isIntegralType(entries.scalar_type(), /*includeBool=*/false);
    sum._values().div_(group.size(), truncates ? std::optional("trunc") : std::nullopt);
  }
  return sum.to(own.scalar_type());
}

void put_back_sparse(const at::Tensor& target, const at::Tensor& sum) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  target.copy_(sum.to(target.device()));
}

}  // namespace smp::smddp
