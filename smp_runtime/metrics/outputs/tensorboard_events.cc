// SPDX-License-Identifier: Apache-2.0
// The format is that of TensorFlow: records as in tensorflow/core/lib/io/record_writer.h, whose
// checksums tensorflow/core/lib/hash/crc32c.h masks; in each an Event of
// tensorflow/core/util/event.proto, whose Summary is tensorflow/core/framework/summary.proto.
// Protobuf's encoding: https://protobuf.dev/programming-guides/encoding.
#include "smp_runtime/metrics/outputs/tensorboard_events.h"

#include <bit>
#include <string_view>
#include <system_error>

#include <fmt/core.h>
#include <unistd.h>

#include "smp_runtime/checkpoint/crc32c.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/host.h"

namespace smp::metrics {
namespace {

namespace fs = std::filesystem;

// Fields of the messages, by number.
constexpr unsigned kWallTime = 1;     // Event: double
constexpr unsigned kStep = 2;         // Event: int64
constexpr unsigned kFileVersion = 3;  // Event: string
constexpr unsigned kSummary = 5;      // Event: Summary
constexpr unsigned kValue = 1;        // Summary: repeated Value
constexpr unsigned kTag = 1;          // Value: string
constexpr unsigned kSimpleValue = 2;  // Value: float

constexpr std::string_view kVersion = "brain.Event:2";  // the first event has it

/// The least significant byte first.
template <typename Unsigned>
std::string little_endian(Unsigned number) {
  std::string bytes;
  for (std::size_t byte = 0; byte < sizeof(number); ++byte) {
    bytes += static_cast<char>((number >> (8 * byte)) & 0xFF);
  }
  return bytes;
}

/// A message of protobuf as it is written.
class ProtobufMessage {
 public:
  void add(unsigned field, std::int64_t number) {
    add_key(field, 0);
    add_varint(static_cast<std::uint64_t>(number));
  }
  void add(unsigned field, double number) {
    add_key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(number));
  }
  void add(unsigned field, float number) {
    add_key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(number));
  }
  /// A text, or a message.
  void add(unsigned field, std::string_view bytes) {
    add_key(field, 2);
    add_varint(bytes.size());
    bytes_ += bytes;
  }

  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  void add_key(unsigned field, unsigned wire_type) { add_varint(field << 3 | wire_type); }

  /// Seven bits a byte, the least significant ones first; all but the last have the highest bit.
  void add_varint(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>((number & 0x7F) | 0x80);
    bytes_ += static_cast<char>(number);
  }

  std::string bytes_;
};

/// The checksum of bytes that may hold checksums themselves.
std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = checkpoint::crc32c(0, std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

std::string record_of(const ProtobufMessage& event) {
  const std::string_view data = event.bytes();
  const std::string length = little_endian(std::uint64_t{data.size()});
  std::string record = length + little_endian(masked_crc32c(length));
  record += data;
  return record + little_endian(masked_crc32c(data));
}

ProtobufMessage message_of(const ScalarEvent& scalar) {
  ProtobufMessage value;
  value.add(kTag, std::string_view(scalar.tag));
  value.add(kSimpleValue, scalar.value);
  ProtobufMessage summary;
  summary.add(kValue, value.bytes());
  ProtobufMessage event;
  event.add(kWallTime, scalar.time);
  event.add(kStep, scalar.step);
  event.add(kSummary, summary.bytes());
  return event;
}

/// Makes `folder`. The name that a new file may have there: TensorBoard reads all files with
/// "tfevents" in their names, in the order of these.
fs::path new_event_file(const fs::path& folder, double time) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw HostError("cannot make {}: {}", folder.string(), failed.message());
  fs::path file;
  int number = 0;
  do {  // one process may have several jobs in a second
    file = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                                static_cast<std::int64_t>(time), host_name(), ::getpid(), number++);
  } while (fs::exists(file, failed));
  return file;
}

}  // namespace

EventFile::EventFile(const fs::path& folder, double time) : path_(new_event_file(folder, time)) {
  ProtobufMessage event;
  event.add(kWallTime, time);
  event.add(kFileVersion, kVersion);
  append_text(path_, record_of(event));
}

void EventFile::append(std::span<const ScalarEvent> events) const {
  std::string records;
  for (const ScalarEvent& event : events) records += record_of(message_of(event));
  append_text(path_, records);
}

}  // namespace smp::metrics
