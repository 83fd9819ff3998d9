// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/jit_type.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/python/bindings.h"

namespace smp::python {
namespace {

namespace py = pybind11;

/// A Python object that C++ hands on. Nothing looks into it.
class Opaque final : public c10::ivalue::PyObjectHolder {
 public:
  explicit Opaque(const py::handle& value) : object_(value.inc_ref().ptr()) {}
  ~Opaque() override {
    const py::gil_scoped_acquire gil;
    Py_DECREF(object_);
  }

  PyObject* getPyObject() override { return object_; }
  c10::InferredType tryToInferType() override { return {"an object of Python"}; }
  c10::IValue toIValue(const c10::TypePtr& /*type*/, std::optional<std::int32_t> /*n*/) override {
    throw InternalError("an object of Python has no value in C++");
  }
  std::string toStr() override { return "an object of Python"; }
  std::vector<at::Tensor> extractTensors() override { return {}; }

 private:
  PyObject* const object_;
};

c10::IValue opaque(const py::handle& value) {
  return c10::IValue(
      c10::intrusive_ptr<c10::ivalue::PyObjectHolder>(c10::make_intrusive<Opaque>(value)));
}

/// Other subclasses would come back as what they are derived from.
bool is_dictionary(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return PyDict_CheckExact(object) != 0 ||
         (PyDict_Check(object) &&
          (name == "collections.OrderedDict" || name == "collections.defaultdict"));
}

bool is_key(const py::handle& key) {
  return PyUnicode_CheckExact(key.ptr()) != 0 || PyLong_CheckExact(key.ptr()) != 0;
}

c10::IValue number_of(const py::handle& value) {
  int overflow = 0;
  const std::int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  return overflow == 0 ? c10::IValue(number) : opaque(value);
}

/// Converts a dictionary, or a mapping that turned into one.
c10::IValue dictionary_of(const py::dict& dictionary, const py::handle& itself) {
  c10::impl::GenericDict result(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : dictionary) {
    if (!is_key(key)) return opaque(itself);
    result.insert(to_object(key), to_object(value));
  }
  return result;
}

std::vector<c10::IValue> elements_of(const py::handle& sequence) {
  std::vector<c10::IValue> elements;
  for (const py::handle element : sequence) elements.push_back(to_object(element));
  return elements;
}

py::dict dictionary_from(const c10::IValue& value) {
  py::dict result;
  for (const auto& entry : value.toGenericDict()) {
    result[from_object(entry.key())] = from_object(entry.value());
  }
  return result;
}

}  // namespace

c10::IValue to_object(const py::handle& value) {
  PyObject* const object = value.ptr();
  if (object == Py_None) return {};
  if (THPVariable_Check(object)) return THPVariable_Unpack(object);
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_CheckExact(object) != 0) return number_of(value);
  if (PyFloat_CheckExact(object) != 0) return PyFloat_AsDouble(object);
  if (PyUnicode_CheckExact(object) != 0) return value.cast<std::string>();
  if (is_dictionary(object)) {
    return dictionary_of(py::reinterpret_borrow<py::dict>(value), value);
  }
  if (PyTuple_CheckExact(object) != 0 || THPSize_Check(object))
    return c10::ivalue::Tuple::create(elements_of(value));
  if (PyList_CheckExact(object) != 0) {
    c10::impl::GenericList list(c10::AnyType::get());
    for (c10::IValue& element : elements_of(value)) list.push_back(std::move(element));
    return list;
  }
  return opaque(value);
}

c10::IValue to_items(const py::handle& mapping) {
  return dictionary_of(py::dict(py::reinterpret_borrow<py::object>(mapping)), mapping);
}

py::object from_object(const c10::IValue& value) {
  if (value.isNone()) return py::none();
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isBool()) return py::bool_(value.toBool());
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isString()) return py::str(value.toStringRef());
  if (value.isGenericDict()) return dictionary_from(value);
  if (value.isPyObject()) {
    return py::reinterpret_borrow<py::object>(value.toPyObject());
  }
  py::list elements;
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.append(from_object(element));
    }
    return py::tuple(elements);
  }
  SMP_CHECK(value.isList(), "an object of kind {} for Python", value.tagKind());
  for (const c10::IValue& element : value.toListRef()) elements.append(from_object(element));
  return elements;
}

}  // namespace smp::python
