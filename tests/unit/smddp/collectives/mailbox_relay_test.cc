// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/mailbox_relay.h"

#include <bit>
#include <set>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

using testing::SizeIs;

TEST(RelaySteps, BringTheMessagesOfAllToAllInAsManyStepsAsTheLogarithm) {
  for (int hosts = 1; hosts <= 130; ++hosts) {
    std::vector<std::vector<RelayStep>> steps;
    std::vector<std::set<int>> had;
    for (int host = 0; host < hosts; ++host) {
      steps.push_back(relay_steps(host, hosts));
      had.push_back({host});
      EXPECT_THAT(steps.back(), SizeIs(std::bit_width(static_cast<unsigned>(hosts - 1))));
    }

    for (size_t number = 0; number < steps.front().size(); ++number) {
      std::vector<std::set<int>> next = had;
      for (int host = 0; host < hosts; ++host) {
        const RelayStep& step = steps[static_cast<size_t>(host)][number];
        const RelayStep& other = steps[static_cast<size_t>(step.to)][number];
        EXPECT_EQ(other.from, host);
        EXPECT_EQ(other.taken, step.handed);
        for (const int one : step.handed) {
          EXPECT_TRUE(had[static_cast<size_t>(host)].contains(one)) << hosts;
          EXPECT_TRUE(next[static_cast<size_t>(step.to)].insert(one).second) << "twice";
        }
      }
      had = next;
    }

    EXPECT_THAT(had, testing::Each(SizeIs(hosts)));
  }
}

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(Bytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += static_cast<char>(byte);
  return text;
}

TEST(Bundle, HasEachMessageAsLongAsItIs) {
  const std::vector<std::byte> bundle =
      bundle_of(std::vector{bytes_of("one"), bytes_of(""), bytes_of("three")});
  std::vector<std::byte> room(10);
  std::vector<std::byte> no_room;
  std::vector<std::byte> exact(5);
  Bytes first(room), second(no_room), third(exact);

  unbundle(bundle, std::vector{&first, &second, &third});

  EXPECT_EQ(text_of(first), "one");
  EXPECT_EQ(text_of(second), "");
  EXPECT_EQ(text_of(third), "three");
  EXPECT_EQ(bundle.size(), bundle_bytes(std::vector<size_t>{3, 0, 5}));
}

TEST(Bundle, BytesThatAreNoneAreRefused) {
  const std::vector<std::byte> bundle = bundle_of(std::vector{bytes_of("one"), bytes_of("two")});
  std::vector<std::byte> places(16);

  const auto take = [&](ConstBytes bytes, size_t room_bytes) {
    Bytes first = Bytes(places).first(room_bytes);
    Bytes second = Bytes(places).last(room_bytes);
    unbundle(bytes, std::vector{&first, &second});
  };

  EXPECT_NO_THROW(take(bundle, 3));
  EXPECT_THROW(take(bundle, 2), HostError);
  for (size_t cut = 0; cut < bundle.size(); ++cut) {
    EXPECT_THROW(take(ConstBytes(bundle).first(cut), 3), HostError) << cut;
  }
  std::vector<std::byte> longer = bundle;
  longer.emplace_back();
  EXPECT_THROW(take(longer, 3), HostError);
  std::vector<std::byte> wrong = bundle;
  wrong[7] = std::byte{0xff};  // the highest of the first size
  EXPECT_THROW(take(wrong, 3), HostError);
}

}  // namespace
}  // namespace smp::collectives
