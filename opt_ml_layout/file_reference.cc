// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/file_reference.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "opt_ml_layout/hyperparameters.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "@file:";
constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 20;

bool is_inside(const fs::path& folder, const fs::path& file) {
  std::error_code failed;
  const fs::path relative =
      fs::weakly_canonical(file, failed).lexically_relative(fs::weakly_canonical(folder, failed));
  return !failed && !relative.empty() && *relative.begin() != "..";
}

std::string read_referenced(const std::string& name, const fs::path& folder, const fs::path& file) {
  const auto fail = [&](std::string_view why) {
    throw smp::ConfigError(
        "hyperparameter \"{}\" names file {}, which {}; expected {}CHANNEL/PATH of a file of at "
        "most {} bytes in the channel",
        name, file.string(), why, kPrefix, kMostBytes);
  };
  std::error_code failed;
  if (!is_inside(folder, file)) fail("lies outside the channel");
  if (!fs::is_regular_file(file, failed)) fail("does not exist");
  if (fs::file_size(file, failed) > kMostBytes) fail("is larger");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("cannot be read");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

/// The file's text; nothing for a value that is no reference.
std::optional<std::string> resolved(const Value::Member& member, const DataChannels& channels) {
  const Value value = decode_hyperparameter(member.value);
  if (value.text() == nullptr || !value.text()->starts_with(kPrefix)) return std::nullopt;
  const std::string path = value.text()->substr(kPrefix.size());
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto channel = std::ranges::find(channels.channels, path.substr(0, slash), &Channel::name);
  if (channel == channels.channels.end()) return std::nullopt;
  return read_referenced(member.key, channel->folder, channel->folder / path.substr(slash + 1));
}

}  // namespace

Value resolve_file_references(const Value& document, const DataChannels& channels) {
  Value result = document;
  for (const Value::Member& member : *document.object()) {
    if (auto text = resolved(member, channels)) result.set(member.key, std::move(*text));
  }
  return result;
}

}  // namespace opt_ml
