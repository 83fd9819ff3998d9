// SPDX-License-Identifier: Apache-2.0
// A partition file: refused with a ConfigError, or a decision that names each module of the model,
// on a partition that there is, and is the same once written.
#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/partition_file.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::partition;  // a program, not a header

constexpr int kPartitions = 2;

ModuleTree model() {
  ModuleTree tree;
  const int shared = tree.add_parameter("weight", 8);
  const int root = tree.add_module({.name = ""});
  const int body = tree.add_module({.name = "body"}, root);
  tree.add_module({.name = "body.0", .parameters = {shared}}, body);
  tree.add_module({.name = "body.1"}, body);
  tree.add_module({.name = "head", .parameters = {shared}}, root);
  return tree;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  static const ModuleTree tree = model();
  try {
    read_partition_summary(fuzz::text_of(bytes, count), "partition.json", kPartitions);
    const Assignment decided =
        read_partition_file(fuzz::text_of(bytes, count), "partition.json", tree, kPartitions);
    fuzz::require(decided.partition_of.size() == static_cast<std::size_t>(tree.size()));
    for (const auto& [module, partition] : decided.partition_of) {
      fuzz::require(tree.find(module) && partition >= 0 && partition < kPartitions);
    }
    const std::string text = partition_file_text(decided, tree, "");
    fuzz::require(read_partition_file(text, "again", tree, kPartitions) == decided);
  } catch (const smp::ConfigError&) {
  }
  return 0;
}
