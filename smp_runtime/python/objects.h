// SPDX-License-Identifier: Apache-2.0
// Python's plain containers, tensors and numbers as objects of torch's interpreter, and back.
#pragma once

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>

namespace smp::python {

/// Dictionaries with texts or whole numbers as keys, lists and tuples become the same in C++; what
/// is no such container, tensor, number, text, flag or None stays a Python object inside, unseen.
c10::IValue to_object(const pybind11::handle& value);

/// The items of a mapping of any class, as to_object() has them.
c10::IValue to_items(const pybind11::handle& mapping);

/// The reverse: the same Python objects where there were any.
pybind11::object from_object(const c10::IValue& value);

}  // namespace smp::python
