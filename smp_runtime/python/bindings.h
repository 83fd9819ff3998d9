// SPDX-License-Identifier: Apache-2.0
// Parts of the extension module smdistributed._runtime, one for each of its files. Signatures and
// docstrings stand in these alone; ci/signatures makes smdistributed/*.pyi of them.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

namespace smp::python {

/// The kinds of errors as Python exceptions; first, since the others raise them.
void bind_errors(pybind11::module_& module);
/// Throws `error`, one of the library's, as an exception that also PyTorch's own bindings hand on.
/// Takes Python's lock.
[[noreturn]] void raise_in_python(const std::exception_ptr& error);
void bind_topology(pybind11::module_& module);
void bind_partition(pybind11::module_& module);
void bind_planner(pybind11::module_& module);
void bind_pipeline(pybind11::module_& module);
void bind_ddp(pybind11::module_& module);
void bind_checkpoint(pybind11::module_& module);
void bind_saved_state(pybind11::module_& module);
void bind_sharding(pybind11::module_& module);
void bind_masters(pybind11::module_& module);
void bind_optimizer(pybind11::module_& module);
void bind_tensor_parallel(pybind11::module_& module);
void bind_session(pybind11::module_& module);
void bind_metrics(pybind11::module_& module);

/// Object of any type as signatures name it; typing.h has no class of its own for that.
using Any = pybind11::typing::TypeVar<"typing.Any">;

/// Python's bytes, held without Python's lock. A str is refused.
struct Bytes {
  std::string value;
};

/// Makes None of a null pointer, so that the signature says so, too.
template <typename Pointer>
std::optional<Pointer> or_none(Pointer pointer) {
  return pointer ? std::optional(std::move(pointer)) : std::nullopt;
}

/// Python's plain containers, tensors and numbers as objects of torch's interpreter: dictionaries
/// with texts or whole numbers as keys, lists and tuples become the same in C++; what is no such
/// container, tensor, number, text, flag or None stays a Python object inside, unseen.
c10::IValue to_object(const pybind11::handle& value);
/// The items of a mapping of any class, as to_object() has them.
c10::IValue to_items(const pybind11::handle& mapping);
/// The reverse: the same Python objects where there were any.
pybind11::object from_object(const c10::IValue& value);

/// A Python object that C++ threads may drop without holding Python's lock.
inline std::shared_ptr<pybind11::object> shared_object(pybind11::object object) {
  return {new pybind11::object(std::move(object)), [](pybind11::object* held) {
            const pybind11::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace smp::python

template <>
struct pybind11::detail::type_caster<smp::python::Bytes> {
  PYBIND11_TYPE_CASTER(smp::python::Bytes, const_name("bytes"));

  bool load(handle source, bool /*convert*/) {
    if (!isinstance<bytes>(source)) return false;
    value.value = reinterpret_borrow<bytes>(source);
    return true;
  }

  static handle cast(const smp::python::Bytes& source, return_value_policy, handle) {
    return bytes(source.value).release();
  }
};
