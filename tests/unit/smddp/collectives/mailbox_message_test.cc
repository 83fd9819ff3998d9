// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/mailbox_message.h"

#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kMailbox = kMailboxHeaderBytes + 4096;
constexpr MessagePlace kPlace{.sequence = 7, .host = 1};

std::vector<std::byte> mailbox_of(const std::string& payload) {
  std::vector<std::byte> mailbox(kMailbox);
  const CallSignature call;
  const uint64_t size = payload.size();
  std::memcpy(mailbox.data(), &call, sizeof(call));
  std::memcpy(mailbox.data() + sizeof(call), &size, sizeof(size));
  std::memcpy(mailbox.data() + kMailboxHeaderBytes, payload.data(), payload.size());
  return mailbox;
}

std::string payload_of(ConstBytes mailbox) {
  const ConstBytes payload = mailbox.subspan(kMailboxHeaderBytes);
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

class MailboxMessage : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::byte> packed() const {
    const std::vector<const std::byte*> both{short_.data(), long_.data()};
    return messages_.pack(kPlace, both);
  }
  void expect_refused(ConstBytes message, const MessagePlace& place, const std::string& why) const {
    EXPECT_THAT([&] { (void)messages_.unpack(place, message, 2); },
                ThrowsMessage<HostError>(HasSubstr(why)));
  }

  const std::string tensor_ = std::string(MailboxMessages::kCoveredBytes + 1, 't');
  const std::vector<std::byte> short_ = mailbox_of("few");
  const std::vector<std::byte> long_ = mailbox_of(tensor_);
  const MailboxMessages messages_{kMailbox, MacKey(JobSecret::draw(), "calls 1")};
};

constexpr const char* kNoCode = "does not carry the code of the job's secret";
constexpr const char* kNoMessage = "another process has sent them";

TEST_F(MailboxMessage, ArrivesAsItWasPacked) {
  const auto message = packed();

  const auto mailboxes = messages_.unpack(kPlace, message, 2);

  ASSERT_EQ(mailboxes.size(), 2);
  EXPECT_EQ(payload_of(mailboxes[0]), "few");
  EXPECT_EQ(payload_of(mailboxes[1]), tensor_);
  EXPECT_LE(message.size(), messages_.longest_bytes(2));
}

TEST_F(MailboxMessage, NoByteOfHeadersOrOfAShortPayloadMayChange) {
  const size_t covered = kMailboxHeaderBytes + 3 + kMailboxHeaderBytes;
  for (size_t at = 0; at < covered; ++at) {
    auto message = packed();
    message[at] ^= std::byte{1};
    EXPECT_THROW((void)messages_.unpack(kPlace, message, 2), HostError) << at;
  }
}

TEST_F(MailboxMessage, TensorsCarryNoCode) {
  auto message = packed();
  message[message.size() - sizeof(Mac) - 1] ^= std::byte{1};

  EXPECT_NO_THROW((void)messages_.unpack(kPlace, message, 2));
}

TEST_F(MailboxMessage, OfAnotherCallOrHostIsRefused) {
  expect_refused(packed(), {.sequence = 8, .host = 1}, kNoCode);
  expect_refused(packed(), {.sequence = 7, .host = 2}, kNoCode);
}

TEST_F(MailboxMessage, OfAnotherSecretOrGroupIsRefused) {
  const MailboxMessages strangers(kMailbox, MacKey(JobSecret::draw(), "calls 1"));
  const std::vector<const std::byte*> both{short_.data(), long_.data()};

  expect_refused(strangers.pack(kPlace, both), kPlace, kNoCode);
}

TEST_F(MailboxMessage, WithoutACodeIsRefused) {
  const MailboxMessages open(kMailbox, std::nullopt);
  const std::vector<const std::byte*> both{short_.data(), long_.data()};

  EXPECT_THROW((void)messages_.unpack(kPlace, open.pack(kPlace, both), 2), HostError);
}

TEST_F(MailboxMessage, SizesThatDoNotFitAreRefusedWithoutAKeyToo) {
  const MailboxMessages open(kMailbox, std::nullopt);
  const std::vector<const std::byte*> both{short_.data(), long_.data()};
  const auto good = open.pack(kPlace, both);
  const auto refuse = [&](std::vector<std::byte> message) {
    EXPECT_THAT([&] { (void)open.unpack(kPlace, message, 2); },
                ThrowsMessage<HostError>(HasSubstr(kNoMessage)));
  };

  for (size_t size = 0; size < good.size(); ++size)
    refuse({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
  for (const uint64_t claimed :
       {uint64_t{4097}, ~uint64_t{0}, ~uint64_t{0} - kMailboxHeaderBytes}) {
    auto message = good;
    std::memcpy(message.data() + sizeof(CallSignature), &claimed, sizeof(claimed));
    refuse(message);
  }
  auto more = good;
  more.push_back({});
  refuse(more);
}

}  // namespace
}  // namespace smp::collectives
