// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/mailbox_message.h"

#include <cstring>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

/// Bytes that the code is of.
std::vector<std::byte> covered(std::span<const ConstBytes> mailboxes) {
  std::vector<std::byte> result;
  for (const ConstBytes mailbox : mailboxes) {
    const bool all = mailbox.size() <= kMailboxHeaderBytes + MailboxMessages::kCoveredBytes;
    const ConstBytes part = all ? mailbox : mailbox.first(kMailboxHeaderBytes);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

MacKey::Field bytes_of(const MessagePlace& place) { return std::as_bytes(std::span(&place, 1)); }

}  // namespace

uint64_t payload_size(const std::byte* mailbox) {
  uint64_t size = 0;
  std::memcpy(&size, mailbox + sizeof(CallSignature), sizeof(size));
  return size;
}

size_t MailboxMessages::longest_bytes(size_t ranks) const {
  return ranks * mailbox_bytes_ + sizeof(Mac);
}

std::vector<std::byte> MailboxMessages::pack(const MessagePlace& place,
                                             std::span<const std::byte* const> mailboxes) const {
  std::vector<std::byte> message;
  std::vector<ConstBytes> parts;
  for (const std::byte* const mailbox : mailboxes) {
    parts.emplace_back(mailbox, kMailboxHeaderBytes + payload_size(mailbox));
    message.insert(message.end(), parts.back().begin(), parts.back().end());
  }
  if (key_) {
    const Mac code = key_->of({bytes_of(place), covered(parts)});
    message.insert(message.end(), code.begin(), code.end());
  }
  return message;
}

std::vector<ConstBytes> MailboxMessages::unpack(const MessagePlace& place, ConstBytes message,
                                                size_t ranks) const {
  const auto check = [&](bool fits) {
    if (fits) return;
    throw HostError(
        "{} bytes that came as host {}'s part of call #{} are none; another process has sent them",
        message.size(), place.host, place.sequence);
  };
  Mac code{};
  ConstBytes rest = message;
  if (key_) {
    check(rest.size() >= code.size());
    std::memcpy(code.data(), rest.last(code.size()).data(), code.size());
    rest = rest.first(rest.size() - code.size());
  }
  std::vector<ConstBytes> mailboxes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    check(rest.size() >= kMailboxHeaderBytes);
    const uint64_t size = payload_size(rest.data());
    check(size <= mailbox_bytes_ - kMailboxHeaderBytes &&
          size <= rest.size() - kMailboxHeaderBytes);
    mailboxes.push_back(rest.first(kMailboxHeaderBytes + size));
    rest = rest.subspan(kMailboxHeaderBytes + size);
  }
  check(rest.empty());
  if (key_ && !key_->fits(code, {bytes_of(place), covered(mailboxes)})) {
    throw HostError(
        "host {}'s part of call #{} does not carry the code of the job's secret: another process "
        "has sent it in that host's name",
        place.host, place.sequence);
  }
  return mailboxes;
}

}  // namespace smp::collectives
