// SPDX-License-Identifier: Apache-2.0
// Key pairs, made by ssh-keygen, and checks of public keys that came from elsewhere.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace entrypoint {

/// "TYPE BASE64" of a public key line, comment dropped. None unless the line is exactly that, with
/// a known type and nothing a shell, authorized_keys or known_hosts could take for something else.
std::optional<std::string> parse_public_key(std::string_view line);

/// Makes an ed25519 pair without passphrase in `private_file` (and `.pub`), and returns the public
/// half. Throws HostError with ssh-keygen's own words.
std::string make_key(const std::filesystem::path& private_file,
                     std::span<const std::string> environment);

/// The public half of a private key file. Throws ConfigError when it is none, or needs a
/// passphrase.
std::string public_key_of(const std::filesystem::path& private_file,
                          std::span<const std::string> environment);

}  // namespace entrypoint
