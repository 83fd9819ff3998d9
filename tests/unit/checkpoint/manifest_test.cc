// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/manifest.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Manifest a_manifest() {
  return {.tag = "step_3",
          .library = "1.15.0+open.1",
          .degrees = {.pipeline = 2, .tensor = 1, .reduced_data = 4},
          .files = {{.name = "model_0_0.pt", .bytes = 5'000'000'000, .crc32c = 0xE3069283},
                    {.name = "model_1_0.pt", .bytes = 0, .crc32c = 7}}};
}

TEST(Manifest, SurvivesJson) {
  EXPECT_EQ(Manifest::from_json(a_manifest().to_json(), "manifest.json"), a_manifest());
}

TEST(Manifest, FindsItsFilesByName) {
  const Manifest manifest = a_manifest();

  ASSERT_NE(manifest.find("model_1_0.pt"), nullptr);
  EXPECT_EQ(manifest.find("model_1_0.pt")->crc32c, 7U);
  EXPECT_EQ(manifest.find("model_2_0.pt"), nullptr);
}

TEST(Manifest, RefusesBrokenAndForeignText) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"format": 1})"),
        a_manifest().to_json().substr(0, 60)}) {
    EXPECT_THAT([&] { Manifest::from_json(text, "x/manifest.json"); },
                ThrowsMessage<ConfigError>(HasSubstr("x/manifest.json: ")));
  }
  EXPECT_THAT([] { Manifest::from_json(R"({"format": 2})", "m"); },
              ThrowsMessage<ConfigError>(HasSubstr("format 2; this version reads format 1")));
  std::string odd = a_manifest().to_json();
  odd.replace(odd.find("e3069283"), 8, "e306928g");
  EXPECT_THAT([&] { Manifest::from_json(odd, "m"); },
              ThrowsMessage<ConfigError>(HasSubstr("crc32c of model_0_0.pt is \"e306928g\"")));
}

TEST(Manifest, RefusesNumbersThatItsFieldsDoNotHoldAndTextThatNestsTooDeep) {
  for (const auto& [number, other] :
       {std::pair("\"pp\": 2", "\"pp\": 4294967298"), std::pair("\"pp\": 2", "\"pp\": 2.5"),
        std::pair("\"rdp\": 4", "\"rdp\": -4"), std::pair("\"bytes\": 0", "\"bytes\": -1"),
        std::pair("\"bytes\": 0", "\"bytes\": 18446744073709551615")}) {
    std::string text = a_manifest().to_json();
    text.replace(text.find(number), std::string(number).size(), other);
    EXPECT_THAT([&] { Manifest::from_json(text, "m"); },
                ThrowsMessage<ConfigError>(HasSubstr("; expected a whole number")))
        << other;
  }
  EXPECT_THAT([] { Manifest::from_json(std::string(1'000'000, '['), "m"); },
              ThrowsMessage<ConfigError>(HasSubstr("m: its JSON nests deeper than 100")));
}

TEST(Manifest, TellsDamagedFilesFromWholeOnes) {
  const ScratchFolder folder;
  const auto path = folder.path() / "model";
  const FileDigest written = write_file(path, "123456789");

  EXPECT_NO_THROW(verify_file(path, written));
  folder.put("model", "12345678");
  EXPECT_THAT([&] { verify_file(path, written); },
              ThrowsMessage<ConfigError>(HasSubstr("model has 8 bytes, but 9 were written")));
  folder.put("model", "123456780");
  EXPECT_THAT([&] { verify_file(path, written); },
              ThrowsMessage<ConfigError>(HasSubstr("but e3069283 was written")));
  std::filesystem::remove(path);
  EXPECT_THAT([&] { verify_file(path, written); },
              ThrowsMessage<HostError>(HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace smp::checkpoint
