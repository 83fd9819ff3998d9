// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/job_secret.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kText = "0123456789abcdef0123456789abcdef";

JobSecret secret_of(const std::string& text) {
  return JobSecret::given({{"SMP_JOB_SECRET", text}}).value();
}

TEST(JobSecretTest, ComesFromTheVariableElseFromTheFile) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "job_secret";
  std::ofstream(file) << kText << "\n";

  EXPECT_FALSE(JobSecret::given({}));
  EXPECT_EQ(secret_of(" " + kText + "\n").text(), kText);
  EXPECT_EQ(JobSecret::given({{"SMP_JOB_SECRET_FILE", file.string()}}).value().text(), kText);
  std::filesystem::remove(file);
}

TEST(JobSecretTest, AShortTextAndAMissingFileAreRefused) {
  EXPECT_THAT([] { secret_of("0123456789"); },
              ThrowsMessage<ConfigError>(HasSubstr("SMP_JOB_SECRET holds 10 characters")));
  EXPECT_THAT(
      [] {
        (void)JobSecret::given({{"SMP_JOB_SECRET_FILE", "/nowhere/secret"}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("/nowhere/secret, which SMP_JOB_SECRET_FILE")));
}

TEST(JobSecretTest, EachDrawnOneIsNewAndLongEnough) {
  const JobSecret one = JobSecret::draw();

  EXPECT_NE(one.text(), JobSecret::draw().text());
  EXPECT_EQ(secret_of(one.text()).text(), one.text());
  EXPECT_EQ(one.text().size(), 64U);
}

// Python: k = blake2b(text, digest_size=32).digest(); p = blake2b(b"store", key=k, digest_size=32)
// .digest(); blake2b(b"\1" + bytes(7) + b"a" + b"\2" + bytes(7) + b"bc", key=p, digest_size=16)
TEST(MacKeyTest, IsKeyedBlake2b) {
  const MacKey key(secret_of(kText), "store");

  EXPECT_EQ(mac_text(key.of({field("a"), field("bc")})), "51a4828e374bceda4b617caf77afd83a");
}

TEST(MacKeyTest, FitsTheSameFieldsUnderTheSameSecretAndPurposeAlone) {
  const MacKey key(secret_of(kText), "store");
  const Mac code = key.of({field("a"), field("bc")});

  EXPECT_TRUE(key.fits(code, {field("a"), field("bc")}));
  EXPECT_FALSE(key.fits(code, {field("ab"), field("c")}));
  EXPECT_FALSE(key.fits(code, {field("a"), field("bc"), field("")}));
  EXPECT_FALSE(MacKey(secret_of(kText), "message").fits(code, {field("a"), field("bc")}));
  EXPECT_FALSE(MacKey(secret_of(kText + "x"), "store").fits(code, {field("a"), field("bc")}));
}

TEST(MacKeyTest, ATextIsReadBackOrIsNoCode) {
  const Mac code = MacKey(secret_of(kText), "store").of({});

  EXPECT_EQ(parse_mac(mac_text(code)), code);
  EXPECT_EQ(parse_mac(mac_text(code).substr(1)), std::nullopt);
  EXPECT_EQ(parse_mac(std::string(32, 'g')), std::nullopt);
  EXPECT_EQ(parse_mac(std::string(32, 'F')), std::nullopt) << "one spelling";
  EXPECT_EQ(parse_mac(std::string(32, ' ')), std::nullopt);
}

TEST(SealKeyTest, OpensWhatItSealedUnderTheSameName) {
  const SealKey key(secret_of(kText), "store");
  const std::vector<std::uint8_t> text{1, 2, 3, 4, 5, 6, 7, 8};

  const auto sealed = key.seal("name", text);

  EXPECT_EQ(sealed.size(), text.size() + sizeof(Mac));
  EXPECT_EQ(key.seal("name", text), sealed);
  EXPECT_EQ(key.open("name", sealed), text);
  EXPECT_EQ(key.open("name", key.seal("name", {})), std::vector<std::uint8_t>());
  EXPECT_EQ(key.open("other", sealed), std::nullopt);
  EXPECT_EQ(SealKey(secret_of(kText), "frames").open("name", sealed), std::nullopt);
  EXPECT_EQ(SealKey(secret_of("x" + kText), "store").open("name", sealed), std::nullopt);
}

TEST(SealKeyTest, OpensNothingThatWasChanged) {
  const SealKey key(secret_of(kText), "store");
  const auto sealed = key.seal("name", std::vector<std::uint8_t>{1, 2, 3});

  for (std::size_t byte = 0; byte < sealed.size(); ++byte) {
    auto changed = sealed;
    changed[byte] ^= 1;
    EXPECT_EQ(key.open("name", changed), std::nullopt);
    EXPECT_EQ(key.open("name", std::span(sealed).first(byte)), std::nullopt);
  }
}

TEST(SealKeyTest, EqualTextsOfTwoNamesShareNoByteButByChance) {
  const SealKey key(secret_of(kText), "store");
  const std::vector<std::uint8_t> zeros(64);

  const auto one = key.seal("one", zeros);
  const auto two = key.seal("two", zeros);

  std::size_t equal = 0;
  for (std::size_t byte = 0; byte < one.size(); ++byte) equal += one[byte] == two[byte];
  EXPECT_LT(equal, 8U);
}

}  // namespace
}  // namespace smp
