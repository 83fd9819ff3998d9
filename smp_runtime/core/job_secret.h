// SPDX-License-Identifier: Apache-2.0
// Secret of a job, by which its processes prove to each other that they are of the job.
//
// The launcher draws it and hands it out over ssh, or the engine that starts the hosts gives it to
// all of them. What a process takes from a network and acts upon carries a code of authentication:
// BLAKE2b with a key (RFC 7693), as libsodium has it, under a key for each purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/variables.h"

namespace smp {

inline constexpr std::string_view kSecretVariable = "SMP_JOB_SECRET";
inline constexpr std::string_view kSecretFileVariable = "SMP_JOB_SECRET_FILE";

class JobSecret {
 public:
  /// A new one: 32 random bytes in hexadecimal.
  [[nodiscard]] static JobSecret draw();
  /// The text of SMP_JOB_SECRET, else of the file that SMP_JOB_SECRET_FILE names; none where
  /// neither is set. Throws ConfigError for a file that cannot be read, and a text of less than 32
  /// characters without the white space around it.
  [[nodiscard]] static std::optional<JobSecret> given(const Variables& variables);

  /// As SMP_JOB_SECRET takes it.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  explicit JobSecret(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

using Mac = std::array<std::byte, 16>;

/// Makes and checks codes for one purpose, such as "store"; those for another one are of no use for
/// it. Safe to use from several threads.
class MacKey {
 public:
  using Field = std::span<const std::byte>;

  MacKey(const JobSecret& secret, std::string_view purpose);

  /// Code of the fields in their order. Fields that are cut otherwise have another one.
  [[nodiscard]] Mac of(std::initializer_list<Field> fields) const;
  /// Compares in constant time.
  [[nodiscard]] bool fits(const Mac& code, std::initializer_list<Field> fields) const;

 private:
  std::array<std::byte, 32> key_{};
};

/// Seals texts for one purpose, each under a name: nobody without the secret reads one, changes it,
/// or gives it another name. A text is sealed alike each time, so that sealed ones are equal as
/// their texts are: its code in front is the nonce of XChaCha20 behind it (SIV; Rogaway and
/// Shrimpton, Eurocrypt 2006). Safe to use from several threads.
class SealKey {
 public:
  SealKey(const JobSecret& secret, std::string_view purpose);

  [[nodiscard]] std::vector<std::uint8_t> seal(std::string_view name,
                                               std::span<const std::uint8_t> text) const;
  /// None for what this key has not sealed under the name.
  [[nodiscard]] std::optional<std::vector<std::uint8_t>> open(
      std::string_view name, std::span<const std::uint8_t> sealed) const;

 private:
  void apply_stream(const Mac& code, std::span<std::uint8_t> bytes) const;

  MacKey codes_;
  std::array<std::byte, 32> stream_key_;
};

/// The bytes of a text as a field.
[[nodiscard]] inline MacKey::Field field(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// In hexadecimal, and back; none for a text that is no code.
[[nodiscard]] std::string mac_text(const Mac& code);
[[nodiscard]] std::optional<Mac> parse_mac(std::string_view text);

/// A number that nobody draws twice: 128 random bits, in hexadecimal.
[[nodiscard]] std::string fresh_nonce();

}  // namespace smp
