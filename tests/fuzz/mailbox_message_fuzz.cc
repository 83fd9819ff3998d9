// SPDX-License-Identifier: Apache-2.0
// The mailboxes of another host as a stranger may send them: what is taken apart lies within the
// message, and each payload fits a mailbox. No key: with one nothing of a stranger's gets so far.
#include <cstring>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/mailbox_message.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::collectives;  // a program, not a header

constexpr std::size_t kMailbox = kMailboxHeaderBytes + 64;
constexpr std::size_t kRanks = 2;

std::string text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  std::vector<std::byte> mailbox(kMailbox);
  const CallSignature call;
  const std::uint64_t size = 5;
  std::memcpy(mailbox.data(), &call, sizeof(call));
  std::memcpy(mailbox.data() + sizeof(call), &size, sizeof(size));
  const std::vector<const std::byte*> both{mailbox.data(), mailbox.data()};
  const std::string good = text(MailboxMessages(kMailbox, std::nullopt).pack({}, both));
  std::string wraps = good;
  const std::uint64_t all = ~std::uint64_t{0};
  std::memcpy(wraps.data() + sizeof(call), &all, sizeof(all));
  return {{"good", good}, {"wraps", wraps}, {"short", good.substr(0, good.size() - 1)}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const ConstBytes message = std::as_bytes(std::span(bytes, count));
  try {
    std::size_t sum = 0;
    for (const ConstBytes mailbox :
         MailboxMessages(kMailbox, std::nullopt).unpack({}, message, kRanks)) {
      fuzz::require(mailbox.size() <= kMailbox);
      fuzz::require(mailbox.data() == message.data() + sum);
      sum += mailbox.size();
    }
    fuzz::require(sum == count);
  } catch (const smp::HostError&) {
  }
  return 0;
}
