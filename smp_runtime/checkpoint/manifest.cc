// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::checkpoint {
namespace {

constexpr int kFormat = 1;

std::uint32_t parse_crc(const std::string& text, const std::string& where,
                        const std::string& name) {
  std::uint32_t crc = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 8) {
    throw ConfigError("{}: crc32c of {} is \"{}\"; expected 8 hexadecimal digits", where, name,
                      text);
  }
  return crc;
}

template <typename Number>
Number number_at(const nlohmann::ordered_json& object, const char* key, const std::string& where) {
  const auto number = whole_number<Number>(object.at(key));
  if (number && *number >= 0) return *number;
  throw ConfigError("{}: \"{}\" is {}; expected a whole number", where, key, object.at(key).dump());
}

}  // namespace

std::string Manifest::to_json() const {
  using nlohmann::ordered_json;
  ordered_json listed = ordered_json::object();
  for (const FileDigest& file : files) {
    listed[file.name] = {{"bytes", file.bytes}, {"crc32c", fmt::format("{:08x}", file.crc32c)}};
  }
  const ordered_json root = {
      {"format", kFormat},
      {"tag", tag},
      {"library", library},
      {"degrees",
       {{"pp", degrees.pipeline}, {"tp", degrees.tensor}, {"rdp", degrees.reduced_data}}},
      {"files", listed}};
  return root.dump(1) + "\n";
}

Manifest Manifest::from_json(std::string_view text, const std::string& where) {
  Manifest manifest;
  try {
    const auto root = parse_json<nlohmann::ordered_json>(text, where);
    if (root.at("format") != kFormat) {
      throw ConfigError("{}: format {}; this version reads format {}", where,
                        root.at("format").dump(), kFormat);
    }
    manifest.tag = root.at("tag").get<std::string>();
    manifest.library = root.at("library").get<std::string>();
    const auto& degrees = root.at("degrees");
    manifest.degrees = {.pipeline = number_at<int>(degrees, "pp", where),
                        .tensor = number_at<int>(degrees, "tp", where),
                        .reduced_data = number_at<int>(degrees, "rdp", where)};
    for (const auto& [name, file] : root.at("files").items()) {
      manifest.files.push_back(
          {.name = name,
           .bytes = number_at<std::int64_t>(file, "bytes", where),
           .crc32c = parse_crc(file.at("crc32c").get<std::string>(), where, name)});
    }
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{}: {}; it is no manifest of a checkpoint, or was damaged", where,
                      error.what());
  }
  return manifest;
}

const FileDigest* Manifest::find(std::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const FileDigest& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

void verify_file(const std::filesystem::path& path, const FileDigest& expected) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw HostError("cannot read {}: {}", path.string(), error.message());
  if (static_cast<std::int64_t>(size) != expected.bytes) {
    throw ConfigError("{} has {} bytes, but {} were written; it was cut short or replaced",
                      path.string(), size, expected.bytes);
  }
  const FileDigest found = digest_of(path);
  if (found.crc32c != expected.crc32c) {
    throw ConfigError(
        "{} has checksum {:08x}, but {:08x} was written; its content was damaged or replaced",
        path.string(), found.crc32c, expected.crc32c);
  }
}

}  // namespace smp::checkpoint
