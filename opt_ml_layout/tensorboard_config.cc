// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/tensorboard_config.h"

#include "opt_ml_layout/json_document.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {

std::filesystem::path read_tensorboard_folder(const Layout& layout) {
  const std::filesystem::path file = layout.tensorboard_config();
  const std::optional<Value> document = read_json_file(file);
  if (!document || document->is_null()) return {};
  const Value* path = document->find("LocalPath");
  if (document->object() != nullptr && (path == nullptr || path->is_null())) return {};
  if (path == nullptr || path->text() == nullptr) {
    throw smp::ConfigError(
        R"({}: found {}, expected an object whose LocalPath is a text; correct it)", file.string(),
        path == nullptr ? document->kind_name() : path->kind_name());
  }
  return *path->text();
}

}  // namespace opt_ml
