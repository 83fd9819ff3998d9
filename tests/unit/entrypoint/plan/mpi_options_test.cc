// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpi_options.h"

#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

std::vector<std::string> keys_of(std::string_view text) {
  std::vector<std::string> keys;
  for (const MpiOption& option : parse_custom_mpi_options(text, {}).options) {
    keys.push_back(option.key);
  }
  return keys;
}

std::vector<std::string> words_of(const std::vector<MpiOption>& options) {
  std::vector<std::string> words;
  for (const MpiOption& option : options) {
    words.insert(words.end(), option.words.begin(), option.words.end());
  }
  return words;
}

TEST(MpiOptions, AreGroupedWithTheirValues) {
  EXPECT_THAT(
      keys_of("-mca btl tcp,self --mca pml ob1 -x A=b -x C --map-by node -np 4 -n 2 --host a"),
      ElementsAre("mca btl", "mca pml", "x A", "x C", "map-by", "np", "np", "host"));
  EXPECT_THAT(keys_of("--verbose word -hostfile /h"), ElementsAre("", "", "hostfile"));
  EXPECT_THAT(keys_of("-npernode 2 -bynode"), ElementsAre("map-by", "map-by"));
}

TEST(MpiOptions, QuotesAreUnderstood) {
  const CustomMpiOptions custom = parse_custom_mpi_options("-x A=\"b c\" -x D='$HOME'", {});

  EXPECT_THAT(words_of(custom.options), ElementsAre("-x", "A=b c", "-x", "D=$HOME"));
}

TEST(MpiOptions, NcclDebugIsOurs) {
  for (const char* text :
       {"--NCCL_DEBUG WARN", "--NCCL_DEBUG=WARN", "--NCCL_D WARN", "--NCCL WARN"}) {
    const CustomMpiOptions custom = parse_custom_mpi_options(text, {});
    EXPECT_EQ(custom.nccl_debug, "WARN") << text;
    EXPECT_THAT(custom.options, IsEmpty()) << text;
  }
  EXPECT_THAT(message_of([] { parse_custom_mpi_options("--NCCL_DEBUG -x A", {}); }),
              HasSubstr("\"--NCCL_DEBUG\" lacks its value"));
}

TEST(MpiOptions, HelpLikeWordsPassThrough) {
  EXPECT_THAT(words_of(parse_custom_mpi_options("-h --help -hostfile f", {}).options),
              ElementsAre("-h", "--help", "-hostfile", "f"));
}

TEST(MpiOptions, AMissingValueIsRefused) {
  EXPECT_THAT(message_of([] { parse_custom_mpi_options("-mca btl", {}); }),
              HasSubstr("\"-mca\" lacks its value"));
  EXPECT_THAT(message_of([] { parse_custom_mpi_options("-x", {}); }), HasSubstr("lacks its value"));
}

TEST(MpiOptions, TheUserWinsOverOurs) {
  const std::vector<std::string> words{"-mca",    "btl",  "^openib", "-x",   "A=1",
                                       "-map-by", "slot", "-x",      "PATH", "--tag-output"};
  const auto ours = group_mpi_options(words);

  const MergedMpiOptions merged = merge_mpi_options(
      ours,
      parse_custom_mpi_options("--mca btl tcp,self -x A=2 --map-by node -x PATH", {}).options);

  EXPECT_THAT(words_of(merged.ours), ElementsAre("--tag-output"));
  EXPECT_THAT(words_of(merged.custom), ElementsAre("--mca", "btl", "tcp,self", "-x", "A=2",
                                                   "--map-by", "node", "-x", "PATH"));
  EXPECT_THAT(
      merged.notes,
      ElementsAre("custom MPI option --mca btl tcp,self replaces the launcher's -mca btl '^openib'",
                  "custom MPI option -x A=2 replaces the launcher's -x A=1",
                  "custom MPI option --map-by node replaces the launcher's -map-by slot"));
}

TEST(MpiOptions, TheDocumentedRepeatOfAnMcaParameterCountsOnce) {
  const std::vector<std::string> words{"-mca", "btl_vader_single_copy_mechanism", "none"};

  const MergedMpiOptions merged = merge_mpi_options(
      group_mpi_options(words),
      parse_custom_mpi_options("--mca btl_vader_single_copy_mechanism none", {}).options);

  EXPECT_THAT(merged.ours, IsEmpty());
  EXPECT_THAT(words_of(merged.custom),
              ElementsAre("--mca", "btl_vader_single_copy_mechanism", "none"));
  EXPECT_THAT(merged.notes, IsEmpty());
}

TEST(MpiOptions, OfTheUsersOwnRepeatsTheLastStays) {
  const MergedMpiOptions merged = merge_mpi_options(
      {}, parse_custom_mpi_options("-mca a 1 -mca b 2 -mca a 3 -mca b 2", {}).options);

  EXPECT_THAT(words_of(merged.custom), ElementsAre("-mca", "a", "3", "-mca", "b", "2"));
  EXPECT_THAT(merged.notes,
              ElementsAre("custom MPI option -mca a 1 gives way to the later -mca a 3"));
}

TEST(MpiOptions, ProcessCountIsANumber) {
  EXPECT_EQ(process_count(parse_custom_mpi_options("-np 3", {}).options), 3);
  EXPECT_EQ(process_count({}), std::nullopt);
  EXPECT_THAT(message_of([] { process_count(parse_custom_mpi_options("-np x", {}).options); }),
              HasSubstr("-np x"));
}

// No key comes twice, and each of the users' keys keeps its last value.
TEST(MpiOptions, MergingRandomOptionsLeavesEachKeyOnce) {
  std::mt19937 random(20261121);
  const auto words = [&] {
    std::vector<std::string> result;
    for (std::size_t left = random() % 12; left > 0; --left) {
      const std::string value = std::to_string(random() % 3);
      switch (random() % 4) {
        case 0:
          result.insert(result.end(), {random() % 2 ? "-mca" : "--mca", "key" + value,
                                       std::to_string(random() % 3)});
          break;
        case 1:
          result.insert(result.end(), {"-x", "NAME" + value + (random() % 2 ? "=1" : "")});
          break;
        case 2:
          result.insert(result.end(), {random() % 2 ? "-map-by" : "--map-by", value});
          break;
        default:
          result.push_back("--other" + value);
      }
    }
    return result;
  };
  for (int round = 0; round < 500; ++round) {
    std::map<std::string, MpiOption> last;
    std::vector<MpiOption> ours;
    for (const MpiOption& option : group_mpi_options(words())) {
      if (option.key.empty() || last.try_emplace(option.key).second) ours.push_back(option);
    }
    last.clear();
    const auto custom = group_mpi_options(words());
    for (const MpiOption& option : custom) last[option.key] = option;

    const MergedMpiOptions merged = merge_mpi_options(ours, custom);

    std::map<std::string, int> seen;
    for (const auto* part : {&merged.ours, &merged.custom}) {
      for (const MpiOption& option : *part) ++seen[option.key];
    }
    seen.erase("");
    for (const auto& [key, count] : seen) EXPECT_EQ(count, 1) << key;
    for (const MpiOption& option : merged.custom) {
      if (option.key.empty()) continue;
      EXPECT_EQ(option, last[option.key]);
    }
  }
}

}  // namespace
}  // namespace entrypoint
