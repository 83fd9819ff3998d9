// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/folder_writer.h"

#include <gtest/gtest.h>

namespace entrypoint::fetch {
namespace {

using namespace std::string_view_literals;

TEST(MemberPath, UsualNamesStay) {
  for (const char* name : {"a", "a/b.py", "ü/ж", "a b", "..a", "a..", "...", "a/.hidden"}) {
    EXPECT_EQ(harmless_path(name).path, name);
    EXPECT_FALSE(harmless_path(name).changed) << name;
  }
  EXPECT_EQ(harmless_path("./a//b/./c/").path, "a/b/c");
  EXPECT_FALSE(harmless_path("./a/").changed);
  EXPECT_EQ(harmless_path("./").path, "");
  EXPECT_FALSE(harmless_path("./").changed);
}

TEST(MemberPath, WaysOutAreDropped) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"/etc/passwd", "etc/passwd"},
      {"../../etc/passwd", "etc/passwd"},
      {"a/../../b", "a/b"},
      {"..\\..\\x", "x"},
      {"C:\\win\\x", "win/x"},
      {"c:x", "x"},
      {"C:D:x", "x"},
      {"//host/share", "host/share"},
      {"..", ""},
      {"/", ""},
  };
  for (const auto& [name, path] : cases) {
    EXPECT_EQ(harmless_path(name).path, path) << name;
    EXPECT_TRUE(harmless_path(name).changed) << name;
  }
  EXPECT_EQ(harmless_path("a\0/../b"sv).path, "a");
  EXPECT_EQ(harmless_path("").path, "");
}

TEST(MemberPath, LinkTargetsAreCounted) {
  EXPECT_TRUE(stays_inside("a", "b"));
  EXPECT_TRUE(stays_inside("d/a", "../b"));
  EXPECT_TRUE(stays_inside("a", "d/../b"));
  EXPECT_TRUE(stays_inside("a", "."));
  EXPECT_FALSE(stays_inside("a", ".."));
  EXPECT_FALSE(stays_inside("d/a", "../../b"));
  EXPECT_FALSE(stays_inside("a", "../code/b"));
  EXPECT_FALSE(stays_inside("a", "/abs"));
  EXPECT_FALSE(stays_inside("a", ""));
}

}  // namespace
}  // namespace entrypoint::fetch
