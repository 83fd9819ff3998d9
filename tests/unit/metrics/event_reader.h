// SPDX-License-Identifier: Apache-2.0
// What TensorBoard finds in event files. Knows of the format what its description says and nothing
// of the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp::metrics {

/// CRC-32C bit by bit.
inline std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

/// Takes values off the front of bytes; throws where there are too few.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("the bytes end too early");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  template <typename Number>
  Number number() {
    Number value{};
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<std::uint8_t>();
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  }

 private:
  std::string_view bytes_;
};

/// A message of protobuf: fields by number, each of the bytes that it came in.
struct ReadMessage {
  explicit ReadMessage(std::string_view bytes) {
    ByteReader reader(bytes);
    while (!reader.at_end()) {
      const std::uint64_t key = reader.varint();
      const std::uint64_t type = key & 7;
      const std::uint64_t field = key >> 3;
      if (type == 0) {
        varints[field] = reader.varint();
      } else if (type == 1 || type == 5) {
        texts[field] = reader.take(type == 1 ? 8 : 4);
      } else if (type == 2) {
        texts[field] = reader.take(reader.varint());
      } else {
        throw std::runtime_error("a wire type that nobody writes");
      }
    }
  }

  template <typename Number>
  [[nodiscard]] Number number(std::uint64_t field) const {
    return ByteReader(texts.at(field)).number<Number>();
  }

  std::map<std::uint64_t, std::uint64_t> varints;
  std::map<std::uint64_t, std::string> texts;
};

/// The data of each record, whose checksums hold.
inline std::vector<std::string> records_of(std::string_view file) {
  const auto check = [](std::string_view bytes, std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xa282ead8U;
    if ((rotated >> 17 | rotated << 15) != slow_crc32c(bytes)) {
      throw std::runtime_error("a checksum is wrong");
    }
  };
  std::vector<std::string> records;
  ByteReader reader(file);
  while (!reader.at_end()) {
    const std::string_view length = reader.take(8);
    check(length, reader.number<std::uint32_t>());
    const std::string_view data = reader.take(ByteReader(length).number<std::uint64_t>());
    check(data, reader.number<std::uint32_t>());
    records.emplace_back(data);
  }
  return records;
}

struct ReadPoint {
  std::uint64_t step = 0;
  float value = 0;
  double time = 0;
  bool operator==(const ReadPoint&) const = default;
};
using Curves = std::map<std::string, std::vector<ReadPoint>>;

/// The curves in all files of a folder, each of which has to begin with the version.
inline Curves read_events(const std::filesystem::path& folder) {
  Curves curves;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::vector<std::string> records = records_of(testing_support::read_file(file.path()));
    if (records.empty() || ReadMessage(records[0]).texts.at(3) != "brain.Event:2") {
      throw std::runtime_error("no version first");
    }
    records.erase(records.begin());
    for (const std::string& record : records) {
      const ReadMessage event(record);
      const ReadMessage value(ReadMessage(event.texts.at(5)).texts.at(1));
      curves[value.texts.at(1)].push_back({.step = event.varints.at(2),
                                           .value = value.number<float>(2),
                                           .time = event.number<double>(1)});
    }
  }
  return curves;
}

}  // namespace smp::metrics
