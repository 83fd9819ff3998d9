// SPDX-License-Identifier: Apache-2.0
// The engine's own fields in the body of a call's messages, in front of the tree's definition.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/channel/tensor_payload.h"

namespace smp::pipeline {

/// The modes under which a module is called; they travel with the call, for they are thread-local.
class CallModes {
 public:
  /// Modes of the calling thread.
  [[nodiscard]] static CallModes current();

  void append_to(std::string& bytes) const;
  /// Reads modes from the front of `bytes` and removes them there. Throws InternalError if the
  /// bytes are none.
  [[nodiscard]] static CallModes take_from(std::string_view& bytes);

  /// Sets modes for its lifetime, and drops the autocast cache of the thread at its end.
  class Guard {
   public:
    explicit Guard(const CallModes& modes);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::unique_ptr<CallModes> previous_;
  };

  bool grad_enabled = true;

 private:
  void apply() const;

  struct Autocast {
    bool enabled = false;
    at::ScalarType type = at::kBFloat16;
  };
  Autocast cpu_;
  Autocast cuda_;
  bool cache_enabled_ = true;
};

/// Arguments or results of a module: a tree whose tensors are replaced by their index
/// (`definition`, opaque here), and the tensors.
struct TensorTree {
  std::string definition;
  std::vector<at::Tensor> tensors;
};

/// A call's request or reply. `tree.tensors` arrive without gradient; `requires_grad` says which of
/// them had one. Those that went another way (DirectValues) are undefined, and `absent` describes
/// them.
struct CallBody {
  CallModes modes;
  std::vector<bool> requires_grad;
  std::vector<std::optional<transport::TensorMeta>> absent;
  TensorTree tree;
};

/// `kShare` for tensors that nobody changes until they have been sent, as those of a caller that
/// waits for the reply; `kCopy` for all others.
enum class Memory { kShare, kCopy };

/// Tensors that stay out of a message, by index; shorter than the tensors means none from there.
using Absent = std::vector<bool>;

/// Throws UserCodeError for tensors that cannot travel: sparse, quantized, on odd devices.
[[nodiscard]] CallData pack_call(const CallModes& modes, TensorTree tree, Memory memory,
                                 const Absent& absent = {});
/// Puts the values that a request took where they belong.
[[nodiscard]] CallBody unpack_call(CallData data);

/// Gradients, of which some may be undefined.
struct GradientBody {
  std::vector<at::Tensor> tensors;
  Absent absent;  ///< undefined here, but there is one
};
[[nodiscard]] CallData pack_gradients(const std::vector<at::Tensor>& gradients,
                                      const Absent& absent = {});
[[nodiscard]] GradientBody unpack_gradients(CallData data);

/// A tensor as the payload of a value; `kShare` as above.
[[nodiscard]] std::shared_ptr<transport::Payload> payload_of_value(const at::Tensor& tensor);
[[nodiscard]] at::Tensor take_value(std::shared_ptr<transport::Payload> payload);

}  // namespace smp::pipeline
