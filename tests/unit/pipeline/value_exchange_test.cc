// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/value_exchange.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/pipeline/toy_program.h"

namespace smp::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Number;
using ::testing::Optional;

constexpr int kMe = 1;
constexpr ValueId kFirst = 11;
constexpr ValueId kSecond = 12;

ValueExchange::Payload number(int64_t value) { return std::make_shared<Number>(value); }

int64_t number_in(const ValueExchange::Payload& payload) {
  return static_cast<const Number&>(*payload).value;
}

Envelope value(ValueId id, int64_t content) {
  return {.kind = Kind::kValue, .call = id, .payload = number(content)};
}

class ValueExchangeTest : public ::testing::Test {
 protected:
  std::vector<std::pair<int, Envelope>> sent_;
  ValueExchange exchange_{kMe, [this](int destination, Envelope envelope) {
                            sent_.emplace_back(destination, std::move(envelope));
                          }};
};

TEST_F(ValueExchangeTest, ARequestWaitsForAllThatItTakes) {
  Envelope request{.kind = Kind::kForward, .call = 5, .inputs = {kFirst, kSecond}};

  EXPECT_FALSE(exchange_.admit(request));
  EXPECT_THAT(exchange_.receive(value(kFirst, 1)), IsEmpty());
  EXPECT_EQ(exchange_.waiting().size(), 1);
  const std::vector<Envelope> ready = exchange_.receive(value(kSecond, 2));

  ASSERT_EQ(ready.size(), 1);
  EXPECT_EQ(ready.front().call, 5);
  EXPECT_THAT(exchange_.waiting(), IsEmpty());
  const auto taken = exchange_.take(ready.front().inputs);
  ASSERT_EQ(taken.size(), 2);
  EXPECT_EQ(number_in(taken[0].second), 1);
  EXPECT_EQ(number_in(taken[1].second), 2);
  EXPECT_EQ(exchange_.size(), 0);  // each was sent for one use
}

TEST_F(ValueExchangeTest, AForwardsValueStaysAndGoesWhereItIsNeeded) {
  const Envelope request{.kind = Kind::kForward,
                         .outputs_kept = {{.destination = 2, .id = kFirst}, {.id = kSecond}}};

  exchange_.give(request, {{kFirst, number(1)}, {kSecond, number(2)}});

  ASSERT_EQ(sent_.size(), 1);
  EXPECT_EQ(sent_[0].first, 2);
  EXPECT_EQ(sent_[0].second.call, kFirst);
  EXPECT_EQ(exchange_.size(), 2);
  exchange_.answer({.kind = Kind::kSend, .caller = 3, .inputs = {kSecond}});
  EXPECT_EQ(sent_[1].first, 3);
  EXPECT_EQ(number_in(sent_[1].second.payload), 2);
  exchange_.forget({kFirst, kSecond});
  EXPECT_EQ(exchange_.size(), 0);
}

TEST_F(ValueExchangeTest, AGradientGoesToItsOnlyUser) {
  const Envelope request{
      .kind = Kind::kBackward,
      .outputs_kept = {{.destination = 2, .id = kFirst}, {.destination = kMe, .id = kSecond}}};

  exchange_.give(request, {{kFirst, number(1)}, {kSecond, number(2)}});

  EXPECT_EQ(sent_.size(), 1);
  EXPECT_EQ(exchange_.size(), 1);
  EXPECT_EQ(number_in(exchange_.take({kSecond})[0].second), 2);
}

TEST_F(ValueExchangeTest, WhatIsFetchedReleasesNobodyElse) {
  exchange_.begin_fetch(2, kFirst, 0);

  EXPECT_EQ(sent_.back().first, 2);
  EXPECT_EQ(sent_.back().second.caller, kMe);
  EXPECT_THAT(exchange_.fetches_from(), Optional(2));
  EXPECT_EQ(exchange_.fetched(), nullptr);
  EXPECT_THAT(exchange_.receive(value(kFirst, 7)), IsEmpty());
  EXPECT_EQ(number_in(exchange_.fetched()), 7);
  EXPECT_EQ(exchange_.fetches_from(), std::nullopt);
}

TEST_F(ValueExchangeTest, ReleasesAreToldToTheirHolderOnce) {
  exchange_.release(2, kFirst);
  exchange_.release(3, kSecond);

  EXPECT_THAT(exchange_.take_released(2), ElementsAre(kFirst));
  EXPECT_THAT(exchange_.take_released(2), IsEmpty());
  exchange_.clear();
  EXPECT_THAT(exchange_.take_released(3), IsEmpty());
}

}  // namespace
}  // namespace smp::pipeline
