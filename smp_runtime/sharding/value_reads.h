// SPDX-License-Identifier: Apache-2.0
// Values that may be elsewhere when an operator reads them.
//
// A watched tensor carries a dispatch key above autograd, and so does each view of it, whoever made
// or saved it: a parameter, what autograd keeps for the backward, a slice that a module returns. An
// operator that gets one comes to the reader of its storage first, which brings the values. The key
// is DeferredInit, which PyTorch keeps for libraries outside of it.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace smp::sharding {

/// Brings the values of watched tensors. Calls come from whatever thread runs an operator.
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  /// An operator is about to read `unit`. Returns whether its values are there, which then stay
  /// until end_read().
  virtual bool begin_read(int unit) = 0;
  virtual void end_read(int unit) = 0;
  /// The values, laid out as the placeholder of the unit's parameter at `place` was.
  [[nodiscard]] virtual at::Tensor values(int unit, std::size_t place) = 0;
  /// Throws, for the operator's caller, `error`, one of the library's.
  [[noreturn]] virtual void raise(std::exception_ptr error) const = 0;
  /// Throws, for the operator's caller, that values of `unit` were read that are not there: those
  /// of the parameter at `place`, or of a view of any.
  [[noreturn]] virtual void refuse(int unit, std::optional<std::size_t> place) const = 0;
};

/// Inside, operators of this thread do not come to readers.
class UnwatchedReads {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::DeferredInit};
};

/// An alias of `whole`, whose storage is the unit's as long as `reader` lives or until unwatch().
at::Tensor watch(const at::Tensor& whole, ValueReader& reader, int unit);

/// Part of a placeholder's text, in front of the place where the values are.
inline constexpr const char* kValuesAreAbsent = "its values are ";

/// A tensor of `sizes`, else as `like`, without memory: it stands for the parameter at `place` of a
/// unit while its values are elsewhere. Whatever reads it by another way than an operator gets a
/// c10::Error with `text`.
at::Tensor placeholder(const at::Tensor& like, at::IntArrayRef sizes, std::string text,
                       ValueReader& reader, int unit, std::size_t place);

/// Forgets the storages of `reader`.
void unwatch(const ValueReader& reader);

}  // namespace smp::sharding
