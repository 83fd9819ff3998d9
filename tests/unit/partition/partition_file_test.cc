// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/partition_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"
#include "tests/unit/refusal.h"

namespace smp::partition {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TreeBuilder a_model_by_hand() {
  TreeBuilder model;
  model.add("embed", 2048).add_list("blocks").add("blocks.0").add("blocks.0.inner", 1024);
  model.add("blocks.1").add("blocks.1.inner", 512).add("blocks.1.norm", 8);
  model.add_sharing("head", "embed");
  return model;
}

std::string file_with(const std::string& entries, int partitions = 2) {
  return "{\"format\": 1, \"partitions\": " + std::to_string(partitions) + ", \"modules\": {" +
         entries + "}}";
}

Assignment read_entries(const std::string& entries, int partitions = 2) {
  const TreeBuilder model = a_model_by_hand();
  return read_partition_file(file_with(entries, partitions), "p.json", model.tree(), partitions);
}

std::string refused_entries(const std::string& entries) {
  return refusal([&] { read_entries(entries); });
}

TEST(PartitionFile, AnEntryMovesWhatIsBelowItButWhatHasAnEntry) {
  const Assignment found = read_entries(R"("": 0, "blocks.1": 1, "blocks.1.norm": 0)");

  EXPECT_EQ(found.partition_of.size(), 9U);
  EXPECT_EQ(found.at("embed"), 0);
  EXPECT_EQ(found.at("blocks.0.inner"), 0);
  EXPECT_EQ(found.at("blocks.1"), 1);
  EXPECT_EQ(found.at("blocks.1.inner"), 1);
  EXPECT_EQ(found.at("blocks.1.norm"), 0);
}

TEST(PartitionFile, ItsTextNamesWhatDoesNotRunWithItsParent) {
  const TreeBuilder model = a_model_by_hand();
  const Assignment assignment = read_entries(R"("": 0, "blocks.1": 1, "blocks.1.norm": 0)");

  const std::string text = partition_file_text(assignment, model.tree(), "by hand");

  EXPECT_EQ(Assignment::from_json(text, "text").partition_of,
            (std::map<std::string, int>{{"", 0}, {"blocks.1", 1}, {"blocks.1.norm", 0}}));
  EXPECT_EQ(read_partition_file(text, "p.json", model.tree(), 2), assignment);
  EXPECT_THAT(text, HasSubstr(R"("summary": "by hand")"));
}

TEST(PartitionFile, SaysWhatItWasWrittenWith) {
  const auto summary = [](const std::string& text) {
    return read_partition_summary(text, "p.json", 2);
  };
  const TreeBuilder model = a_model_by_hand();
  const Assignment assignment = read_entries(R"("": 0, "blocks.1": 1)");

  EXPECT_EQ(summary(partition_file_text(assignment, model.tree(), "one\ntwo \xc3\xa4")),
            "one?two ??");
  EXPECT_EQ(summary(file_with(R"("": 0)")), "");
  EXPECT_THAT(refusal([&] { summary(file_with(R"("": 0)", 3)); }),
              StartsWith("p.json: it is for 3 partitions, but the job has partitions=2"));
}

TEST(PartitionFile, AFileWithAllModulesIsTakenAsItIs) {
  const TreeBuilder model = a_model_by_hand();
  const Assignment assignment = read_entries(R"("": 0, "blocks.1": 1)");

  EXPECT_EQ(read_partition_file(assignment.to_json(), "p.json", model.tree(), 2), assignment);
}

TEST(PartitionFile, UnknownModulesAreNamedWithTheNearestOnes) {
  EXPECT_THAT(refused_entries(R"("": 0, "block.1": 1)"),
              AllOf(StartsWith("p.json: it names module \"block.1\", which this model does not"),
                    HasSubstr("did you mean blocks.1")));
  EXPECT_THAT(refused_entries(R"("": 0, "something.else.altogether": 1)"),
              HasSubstr("named_modules()"));
}

TEST(PartitionFile, TheRootHasAnEntry) {
  EXPECT_THAT(refused_entries(R"("blocks.1": 1)"),
              HasSubstr("it does not name the model itself; add the entry \"\": 0"));
}

TEST(PartitionFile, EachPartitionRunsSomething) {
  EXPECT_THAT(refused_entries(R"("": 0)"),
              StartsWith("p.json: no module that is run is on partition 1; expected one or more on "
                         "each of 0 to 1: add an entry, or take fewer partitions"));
  EXPECT_THAT(refused_entries(R"("": 0, "blocks": 1, "blocks.0": 0, "blocks.1": 0)"),
              HasSubstr("no module that is run is on partition 1"));
}

TEST(PartitionFile, SharedParametersStayTogetherAlsoWhereAParentMoves) {
  EXPECT_THAT(refused_entries(R"("": 1, "embed": 0)"),
              StartsWith("p.json: modules embed (partition 0) and head (partition 1) share "
                         "parameter embed.weight; put both on one partition"));
}

TEST(PartitionFile, OneOfAnotherJobIsRefused) {
  const TreeBuilder model = a_model_by_hand();
  const std::string text = file_with(R"("": 0, "blocks.1": 1)", 2);

  EXPECT_THAT(refusal([&] { read_partition_file(text, "p.json", model.tree(), 4); }),
              StartsWith("p.json: it is for 2 partitions, but the job has partitions=4; "));
}

}  // namespace
}  // namespace smp::partition
