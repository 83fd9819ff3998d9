// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/job_secret.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <sodium.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace smp {
namespace {

constexpr std::size_t kDrawnBytes = 32;
constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kShortestText = 32;

const unsigned char* bytes_of(MacKey::Field field) {
  return reinterpret_cast<const unsigned char*>(field.data());
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text(bytes.size() * 2 + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes_of(bytes), bytes.size());
  text.pop_back();
  return text;
}

template <std::size_t Size>
std::string drawn() {
  std::array<std::byte, Size> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return hexadecimal(bytes);
}

std::array<std::byte, 32> derived_key(const JobSecret& secret, std::string_view purpose) {
  // Before it libsodium hashes without this processor's wide registers.
  SMP_CHECK(sodium_init() >= 0, "libsodium does not start");
  std::array<std::byte, 32> whole{};
  std::array<std::byte, 32> key{};
  crypto_generichash(reinterpret_cast<unsigned char*>(whole.data()), whole.size(),
                     bytes_of(field(secret.text())), secret.text().size(), nullptr, 0);
  crypto_generichash(reinterpret_cast<unsigned char*>(key.data()), key.size(),
                     bytes_of(field(purpose)), purpose.size(), bytes_of(whole), whole.size());
  return key;
}

}  // namespace

JobSecret JobSecret::draw() { return JobSecret(drawn<kDrawnBytes>()); }

std::optional<JobSecret> JobSecret::given(const Variables& variables) {
  std::string text = value_or(variables, kSecretVariable);
  std::string place(kSecretVariable);
  if (text.empty()) {
    const std::string file = value_or(variables, kSecretFileVariable);
    if (file.empty()) return std::nullopt;
    text = read_text(file);
    place = fmt::format("{}, which {} names,", file, kSecretFileVariable);
  }
  text = trimmed(text);
  if (text.size() < kShortestText) {
    throw ConfigError(
        "{} holds {} characters; expected a secret of at least {}, the same on all hosts, such as "
        "the output of: head -c32 /dev/urandom | base64 -w0",
        place, text.size(), kShortestText);
  }
  return JobSecret(std::move(text));
}

MacKey::MacKey(const JobSecret& secret, std::string_view purpose)
    : key_(derived_key(secret, purpose)) {}

Mac MacKey::of(std::initializer_list<Field> fields) const {
  crypto_generichash_state state;
  crypto_generichash_init(&state, bytes_of(key_), key_.size(), std::tuple_size_v<Mac>);
  for (const Field& one : fields) {
    const std::uint64_t size = one.size();
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&size), sizeof(size));
    crypto_generichash_update(&state, bytes_of(one), one.size());
  }
  Mac code;
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(code.data()), code.size());
  return code;
}

bool MacKey::fits(const Mac& code, std::initializer_list<Field> fields) const {
  return sodium_memcmp(code.data(), of(fields).data(), code.size()) == 0;
}

SealKey::SealKey(const JobSecret& secret, std::string_view purpose)
    : codes_(secret, purpose),
      stream_key_(derived_key(secret, fmt::format("{} stream", purpose))) {}

void SealKey::apply_stream(const Mac& code, std::span<std::uint8_t> bytes) const {
  if (bytes.empty()) return;  // their address may be null
  std::array<std::uint8_t, crypto_stream_xchacha20_NONCEBYTES> nonce{};
  std::memcpy(nonce.data(), code.data(), code.size());
  crypto_stream_xchacha20_xor(bytes.data(), bytes.data(), bytes.size(), nonce.data(),
                              bytes_of(stream_key_));
}

std::vector<std::uint8_t> SealKey::seal(std::string_view name,
                                        std::span<const std::uint8_t> text) const {
  const Mac code = codes_.of({field(name), std::as_bytes(text)});
  std::vector<std::uint8_t> sealed(code.size() + text.size());
  std::memcpy(sealed.data(), code.data(), code.size());
  std::ranges::copy(text, sealed.begin() + code.size());
  apply_stream(code, std::span(sealed).subspan(code.size()));
  return sealed;
}

std::optional<std::vector<std::uint8_t>> SealKey::open(std::string_view name,
                                                       std::span<const std::uint8_t> sealed) const {
  Mac code;
  if (sealed.size() < code.size()) return std::nullopt;
  std::memcpy(code.data(), sealed.data(), code.size());
  std::vector<std::uint8_t> text(sealed.begin() + code.size(), sealed.end());
  apply_stream(code, text);
  if (!codes_.fits(code, {field(name), std::as_bytes(std::span(text))})) return std::nullopt;
  return text;
}

std::string mac_text(const Mac& code) { return hexadecimal(code); }

std::optional<Mac> parse_mac(std::string_view text) {
  Mac code;
  std::size_t size = 0;
  const char* end = nullptr;
  if (text.size() != code.size() * 2 ||
      sodium_hex2bin(reinterpret_cast<unsigned char*>(code.data()), code.size(), text.data(),
                     text.size(), nullptr, &size, &end) != 0 ||
      size != code.size() || mac_text(code) != text) {  // a code has one spelling
    return std::nullopt;
  }
  return code;
}

std::string fresh_nonce() { return drawn<kNonceBytes>(); }

}  // namespace smp
