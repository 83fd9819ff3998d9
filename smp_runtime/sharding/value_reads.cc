// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/value_reads.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

constexpr auto kWatched = c10::DispatchKey::DeferredInit;
// Texts in operators' errors about a placeholder, all of whose elements are one, before they read
// it.
constexpr std::array kSignsOfPlaceholders = {kValuesAreAbsent, "out of bounds for storage",
                                             "refers to a single memory location"};

struct Watched {
  ValueReader* reader = nullptr;
  int unit = 0;
  std::optional<std::size_t> place;  ///< of the parameter that a placeholder stands for
};

/// Registry of watched storages. One for the process, as the operators are.
class Registry {
 public:
  static Registry& get() {
    static auto& registry = *new Registry;  // tensors may outlive whatever ends with the process
    return registry;
  }

  void add(const c10::StorageImpl* storage, Watched watched) {
    const std::unique_lock lock(mutex_);
    storages_[storage] = watched;
  }

  void remove(const ValueReader& reader) {
    const std::unique_lock lock(mutex_);
    std::erase_if(storages_, [&](const auto& entry) { return entry.second.reader == &reader; });
  }

  [[nodiscard]] std::optional<Watched> find(const at::Tensor& tensor) const {
    const std::shared_lock lock(mutex_);
    const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
    return found == storages_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::shared_mutex mutex_;  ///< guards storages_
  std::unordered_map<const c10::StorageImpl*, Watched> storages_;
};

at::Tensor on_storage(const c10::Storage& storage, const at::Tensor& like) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                  like.key_set().add(kWatched), like.dtype());
}

/// The values that one operator reads, brought for as long as it runs.
class Reading {
 public:
  // Delegates, so that what is pinned is let go where a later argument is refused.
  explicit Reading(c10::ArrayRef<c10::IValue> arguments) : Reading() {
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor()) {
        add(argument.toTensor());
      } else if (argument.isTensorList()) {
        for (const at::Tensor& tensor : argument.toTensorVector()) add(tensor);
      } else if (argument.isList()) {
        for (const c10::IValue& element : argument.toListRef()) {
          if (element.isTensor()) add(element.toTensor());
        }
      }
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() {
    for (const auto& [reader, unit] : pinned_) reader->end_read(unit);
  }

  /// An operator failed with `error`: throws in its place that it read values that are not here.
  void explain(const c10::Error& error) const {
    if (!absent_.reader || error.what_without_backtrace() == nullptr) return;
    const std::string_view text = error.what_without_backtrace();
    for (const char* sign : kSignsOfPlaceholders) {
      if (text.find(sign) != std::string_view::npos) {
        absent_.reader->refuse(absent_.unit, absent_.place);
      }
    }
  }

 private:
  Reading() = default;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.key_set().has(kWatched)) return;
    const std::optional<Watched> watched = Registry::get().find(tensor);
    if (!watched) return;  // of a store that is gone
    bool there = false;
    try {
      there = watched->reader->begin_read(watched->unit);
    } catch (const Error&) {
      watched->reader->raise(std::current_exception());
    }
    if (!there) {
      // A placeholder answers what needs no values, such as its shape; a view of values that have
      // been given back has no memory to look at.
      if (!watched->place) watched->reader->refuse(watched->unit, {});
      absent_ = *watched;
      return;
    }
    pinned_.emplace_back(watched->reader, watched->unit);
    if (!watched->place) return;
    if (Registry::get().find(tensor)->place) {  // not the parameter itself, which shows them now
      tensor.unsafeGetTensorImpl()->shallow_copy_from(
          watched->reader->values(watched->unit, *watched->place).getIntrusivePtr());
    }
  }

  std::vector<std::pair<ValueReader*, int>> pinned_;
  Watched absent_;
};

void read_watched(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const UnwatchedReads unwatched;
  const Reading reading(torch::jit::last(*stack, op.schema().arguments().size()));
  try {
    op.callBoxed(*stack);
  } catch (const c10::Error& error) {
    reading.explain(error);
    throw;
  }
}

}  // namespace

at::Tensor watch(const at::Tensor& whole, ValueReader& reader, int unit) {
  at::Tensor alias = on_storage(whole.storage(), whole);
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(whole.sizes(), whole.strides());
  Registry::get().add(whole.storage().unsafeGetStorageImpl(),
                      {.reader = &reader, .unit = unit, .place = {}});
  return alias;
}

at::Tensor placeholder(const at::Tensor& like, at::IntArrayRef sizes, std::string text,
                       ValueReader& reader, int unit, std::size_t place) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t{},
      c10::SymInt(static_cast<std::int64_t>(like.element_size())),
      at::DataPtr(nullptr, like.device()), nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(text));
  Registry::get().add(storage.get(), {.reader = &reader, .unit = unit, .place = place});
  at::Tensor made = on_storage(c10::Storage(std::move(storage)), like);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes,
                                                    std::vector<std::int64_t>(sizes.size(), 0));
  return made;
}

void unwatch(const ValueReader& reader) { Registry::get().remove(reader); }

}  // namespace smp::sharding

TORCH_LIBRARY_IMPL(_, DeferredInit, module) {
  module.fallback(torch::CppFunction::makeFromBoxedFunction<&smp::sharding::read_watched>());
}
