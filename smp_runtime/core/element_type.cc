// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/element_type.h"

#include <array>

#include "smp_runtime/core/error.h"

namespace smp {
namespace {

struct Description {
  std::string_view name;
  size_t size_bytes;
};

constexpr std::array<Description, 11> kTypes{{{"float16", 2},
                                              {"bfloat16", 2},
                                              {"float32", 4},
                                              {"float64", 8},
                                              {"int8", 1},
                                              {"uint8", 1},
                                              {"int16", 2},
                                              {"int32", 4},
                                              {"int64", 8},
                                              {"bool", 1},
                                              {"bytes", 1}}};
constexpr std::array<std::string_view, 8> kOps{"sum", "average", "product", "min",
                                               "max", "band",    "bor",     "bxor"};

}  // namespace

size_t size_bytes(ElementType type) { return kTypes.at(static_cast<size_t>(type)).size_bytes; }

std::string_view name(ElementType type) { return kTypes.at(static_cast<size_t>(type)).name; }

std::string_view name(ReduceOp op) { return kOps.at(static_cast<size_t>(op)); }

void check_reducible(ElementType type, ReduceOp op) {
  const bool floating = type <= ElementType::kFloat64;
  const bool bits = op >= ReduceOp::kBitAnd;
  const bool truths = type == ElementType::kBool && op == ReduceOp::kAverage;
  if (type == ElementType::kBytes || (floating && bits) || truths) {
    throw ConfigError("smddp cannot reduce {} tensors with {}", name(type), name(op));
  }
}

}  // namespace smp
