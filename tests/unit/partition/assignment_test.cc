// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/assignment.h"

#include <algorithm>
#include <functional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"
#include "tests/unit/refusal.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TreeBuilder a_model() {
  TreeBuilder model;
  model.add("embed", 2048).add_list("blocks").add("blocks.0", 1024).add("blocks.1", 512);
  model.add_sharing("head", "embed");
  return model;
}

Assignment an_assignment(const ModuleTree& tree) {
  return make_assignment(tree, {0, 0, 0, 0, 1, 0}, 2);
}

TEST(Assignment, SurvivesItsFile) {
  const TreeBuilder model = a_model();
  const Assignment assignment = an_assignment(model.tree());

  const Assignment read = Assignment::from_json(assignment.to_json(), "file");

  EXPECT_EQ(read, assignment);
  EXPECT_EQ(refusal([&] { check_fits(read, model.tree(), 2); }), "accepted");
}

TEST(Assignment, BrokenFilesAreRefused) {
  const auto read = [](const char* text) {
    return refusal([&] { Assignment::from_json(text, "p.json"); });
  };

  const auto with_entry = [&](const std::string& entry) {
    return read((R"({"format": 1, "partitions": 2, "modules": {)" + entry + "}}").c_str());
  };

  EXPECT_THAT(read("{"), StartsWith("p.json: it is no JSON (parse error at line 1, column 2"));
  EXPECT_THAT(read(" \n"), StartsWith("p.json: it is empty; expected {\"format\": 1"));
  EXPECT_THAT(read("[]"), HasSubstr("it has no \"format\"; expected {\"format\": 1"));
  EXPECT_THAT(read(R"({"format": 2})"), HasSubstr("this version reads format 1"));
  EXPECT_THAT(read(R"({"format": 1, "modules": {}})"), HasSubstr("it has no \"partitions\""));
  EXPECT_THAT(read(R"({"format": 1, "partitions": 2, "modules": [0]})"),
              HasSubstr("\"modules\" is [0]; expected {\"format\": 1"));
  EXPECT_THAT(read(R"({"format": 1, "partitions": 0, "modules": {}})"),
              HasSubstr("\"partitions\" is 0; expected 1 or more"));
  EXPECT_THAT(read(R"({"format": 1, "partitions": 4294967298, "modules": {}})"),
              HasSubstr("\"partitions\" is 4294967298; expected 1 or more"));
  EXPECT_THAT(read(R"({"partitions": 1e999})"), HasSubstr("it is no JSON (number overflow"));
  EXPECT_THAT(read(std::string(1'000'000, '[').c_str()), HasSubstr("it nests deeper than 100"));
  for (const char* partition :
       {"\"x\"", "2", "-1", "4294967296", "18446744073709551615", "0.5", "true", "null", "[0]"}) {
    EXPECT_THAT(
        with_entry(fmt::format("\"a\": {}", partition)),
        HasSubstr(fmt::format("module \"a\" is on partition {}; expected 0 to 1", partition)));
  }
  EXPECT_THAT(with_entry("\"a\": 0, \"a\": 1"),
              HasSubstr("it names \"a\" twice; leave one of the entries"));
}

TEST(Assignment, OneOfAnotherModelIsRefused) {
  const TreeBuilder model = a_model();
  const auto fit = [&](const Assignment& assignment, int partitions) {
    return refusal([&] { check_fits(assignment, model.tree(), partitions); });
  };
  const Assignment good = an_assignment(model.tree());

  Assignment extra = good;
  extra.partition_of["tail"] = 0;
  Assignment short_of_one = good;
  short_of_one.partition_of.erase("head");
  Assignment torn = good;
  torn.partition_of["head"] = 1;

  EXPECT_THAT(fit(good, 4), HasSubstr("is for 2 partitions, but the job has partitions=4"));
  EXPECT_THAT(fit(extra, 2), HasSubstr("names module \"tail\", which this model does not have"));
  EXPECT_THAT(fit(short_of_one, 2), HasSubstr("does not name module \"head\""));
  EXPECT_THAT(fit(torn, 2),
              HasSubstr("embed (partition 0) and head (partition 1) share parameter"));
}

TEST(Assignment, CountsSharedBytesOnce) {
  const TreeBuilder model = a_model();

  EXPECT_THAT(parameter_bytes_of(an_assignment(model.tree()), model.tree()),
              ElementsAre(3072, 512));
}

TEST(Assignment, SaysInOneLineWhereThingsWent) {
  const TreeBuilder model = a_model();

  EXPECT_EQ(assignment_line(an_assignment(model.tree()), model.tree()),
            "Partition assignments: (root)=0 blocks.1=1; other modules run with their parent; "
            "parameters 0:3.0 KiB 1:512 B");
}

TEST(Assignment, PrintsTheTreeDownToWholeModules) {
  TreeBuilder model = a_model();
  model.add("blocks.1.inner", 128);
  const Assignment assignment = make_assignment(model.tree(), {0, 0, 0, 0, 1, 0, 1}, 2);

  const std::string text = assignment_tree(assignment, model.tree());

  EXPECT_THAT(text, StartsWith("\n(root)"));
  EXPECT_THAT(text, testing::ContainsRegex("\n    blocks.1 +partition +1 +640 B"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "\n  blocks +partition +0 +1.6 KiB +[0-9.]+ %  .not run itself"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("inner")));
}

/// The rows of a tree: name and partitions, without amounts.
std::vector<std::string> places(const std::string& text) {
  const std::regex row("\n( *)(.*?) +(partitions? +.*?)  .*");
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), row), end; match != end; ++match) {
    found.push_back(
        std::regex_replace((*match)[1].str() + (*match)[2].str() + " | " + (*match)[3].str(),
                           std::regex("(partitions?) +"), "$1 "));
  }
  return found;
}

/// An embedding, a list of modules of two parts each, and a head.
TreeBuilder a_deep_model(int blocks) {
  TreeBuilder model;
  model.add("embed", 64).add_list("h");
  for (int i = 0; i < blocks; ++i) {
    const std::string block = "h." + std::to_string(i);
    model.add(block).add(block + ".attn", 100).add(block + ".mlp", 300);
  }
  model.add("head", 64);
  return model;
}

Assignment assigned(const ModuleTree& tree, int partitions,
                    const std::function<int(const std::string&)>& partition_of) {
  std::vector<int> by_node;
  for (int node = 0; node < tree.size(); ++node) {
    by_node.push_back(partition_of(tree.module(node).name));
  }
  return make_assignment(tree, by_node, partitions);
}

int block_of(const std::string& name) {
  return name.starts_with("h.") ? std::stoi(name.substr(2)) : -1;
}

TEST(Assignment, FoldsSiblingsOfOnePartition) {
  const TreeBuilder model = a_deep_model(48);
  const Assignment assignment = assigned(
      model.tree(), 2, [](const auto& name) { return block_of(name) >= 24 || name == "head"; });

  const std::string whole = assignment_tree(assignment, model.tree());
  const std::string folded = assignment_tree(assignment, model.tree(), 30);

  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 1 + 1 + 1 + 48 + 1);
  EXPECT_THAT(places(folded),
              ElementsAre("(root) | partition 0", "  embed | partition 0", "  h | partition 0",
                          "    h.0 ... 23: 24 modules | partition 0",
                          "    h.24 ... 47: 24 modules | partition 1", "  head | partition 1"));
  EXPECT_THAT(folded, HasSubstr("9.4 KiB")) << "24 times 400 bytes";
}

TEST(Assignment, ShortTreesAreNotFolded) {
  const TreeBuilder model = a_deep_model(26);
  const Assignment assignment =
      assigned(model.tree(), 2, [](const auto& name) { return block_of(name) >= 13; });

  const std::string whole = assignment_tree(assignment, model.tree());

  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 30);
  EXPECT_EQ(assignment_tree(assignment, model.tree(), 30), whole);
}

TEST(Assignment, FoldsTheDeepestLevelWhereTooManyModulesAreDivided) {
  const TreeBuilder model = a_deep_model(20);
  const Assignment assignment =
      assigned(model.tree(), 2, [](const auto& name) { return name.ends_with(".mlp"); });

  const std::vector<std::string> rows = places(assignment_tree(assignment, model.tree(), 30));

  ASSERT_EQ(rows.size(), 24U);
  EXPECT_EQ(rows[2], "  h | partition 0");
  EXPECT_EQ(rows[3], "    h.0 | partitions 0, 1");
  EXPECT_EQ(rows[22], "    h.19 | partitions 0, 1");
}

TEST(Assignment, FoldsTheRestOfALevelThatIsTooLong) {
  TreeBuilder model;
  for (int i = 0; i < 100; ++i) model.add("m" + std::to_string(i), 10);
  const Assignment assignment = assigned(model.tree(), 2, [](const auto& name) {
    return name.empty() ? 0 : std::stoi(name.substr(1)) % 2;
  });

  const std::vector<std::string> rows = places(assignment_tree(assignment, model.tree(), 30));

  ASSERT_EQ(rows.size(), 30U);
  EXPECT_EQ(rows[28], "  m27 | partition 1");
  EXPECT_EQ(rows[29], "  m28 ... m99: 72 modules | partitions 0, 1");
}

TEST(Assignment, NoFoldedTreeIsTooLong) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const ModuleTree tree = random_tree(seed, 120, false);
    std::mt19937 random(seed);
    const Assignment assignment =
        assigned(tree, 4, [&](const auto&) { return static_cast<int>(random() % 4); });

    const std::string folded = assignment_tree(assignment, tree, 30);

    EXPECT_LE(std::count(folded.begin(), folded.end(), '\n'), 30) << "seed " << seed;
  }
}

TEST(Assignment, SaysHowEvenItIs) {
  const TreeBuilder model = a_model();

  EXPECT_EQ(balance_line(an_assignment(model.tree()), model.tree()),
            "Partition balance: 0: 3.0 KiB parameters, 0 B activations, 85.7 % of the time; "
            "1: 512 B parameters, 0 B activations, 14.3 % of the time; most over mean: "
            "parameters 1.71, time 1.71");
}

TEST(AssignManual, UnmarkedModulesGoToTheDefault) {
  TreeBuilder model;
  model.add("a", 1).add_pinned("b", 0, 1);

  const Assignment assignment = assign_manual(model.tree(), 2, 1);

  EXPECT_EQ(assignment.at(""), 1);
  EXPECT_EQ(assignment.at("a"), 1);
  EXPECT_EQ(assignment.at("b"), 0);
}

TEST(AssignManual, ChildrenInheritAndTheInnermostPinWins) {
  TreeBuilder model;
  model.add_pinned("outer", 1).add("outer.plain", 1).add_pinned("outer.inner", 2);
  model.add("outer.inner.leaf", 1);

  const Assignment assignment = assign_manual(model.tree(), 3, 0);

  EXPECT_EQ(assignment.at("outer.plain"), 1);
  EXPECT_EQ(assignment.at("outer.inner"), 2);
  EXPECT_EQ(assignment.at("outer.inner.leaf"), 2);
}

TEST(AssignManual, APinOutsideIsRefused) {
  TreeBuilder model;
  model.add_pinned("fc", 2, 1);

  EXPECT_THAT(refusal([&] { assign_manual(model.tree(), 2, 0); }),
              HasSubstr("module fc is put on partition 2; expected 0 to 1 with partitions=2"));
}

TEST(AssignManual, SharedParametersMustStayTogether) {
  TreeBuilder model;
  model.add("embed", 4).add_pinned("stack", 1).add_sharing("stack.head", "embed");

  EXPECT_THAT(refusal([&] { assign_manual(model.tree(), 2, 0); }),
              HasSubstr("modules embed (partition 0) and stack.head (partition 1) share parameter "
                        "embed.weight; put both on one partition"));
  EXPECT_EQ(assign_manual(model.tree(), 2, 1).at("embed"), 1);
}

}  // namespace

}  // namespace smp::partition
