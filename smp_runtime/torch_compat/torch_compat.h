// SPDX-License-Identifier: Apache-2.0
// Differences between the versions of PyTorch that the library compiles against, 2.10 to 2.15. No
// other file asks for a version: a new PyTorch needs this header and nothing else.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include "smp_runtime/core/error.h"

namespace smp::torch_compat {

/// Holds a node of autograd's graph: std::shared_ptr in 2.11, c10::intrusive_ptr in 2.15.
using NodePtr =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// A node of a class of our own.
template <class Node, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  }
}

// Collectives of one tensor, of c10d::ProcessGroup: they have these names in 2.15, where those of
// 2.11 are deprecated.

template <class Group>
auto all_gather_single(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.all_gather_single(output, input); }) {
    return group.all_gather_single(output, input);
  } else {
    return group._allgather_base(output, input);
  }
}

template <class Group>
auto reduce_scatter_single(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.reduce_scatter_single(output, input); }) {
    return group.reduce_scatter_single(output, input);
  } else {
    return group._reduce_scatter_base(output, input);
  }
}

/// Equal parts from and to each rank.
template <class Group>
auto all_to_all_single(Group& group, at::Tensor& output, at::Tensor& input) {
  std::vector<std::int64_t> equal;
  if constexpr (requires { group.all_to_all_single(output, input, equal, equal); }) {
    return group.all_to_all_single(output, input, equal, equal);
  } else {
    return group.alltoall_base(output, input, equal, equal);
  }
}

/// The device's own handle of a stream, which torch 2.10 does not tell: the cudaStream_t of a CUDA
/// stream. Throws ConfigError with torch 2.10, for which the library is
/// built without GPU code.
template <class Stream>
void* native_handle(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    throw ConfigError(
        "GPU tensors need torch 2.11 or newer; this library was built for torch 2.10");
  }
}

}  // namespace smp::torch_compat
