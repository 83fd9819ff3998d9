// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/aws_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing_support::TemporaryFolder;
using testing_support::write_file;

constexpr const char* kText =
    "# a comment\r\n"
    "[default]\n"
    "aws_access_key_id=AKDEFAULT\n"
    "s3 =\n"
    "  endpoint_url = http://nested\n"
    "\n"
    "[ profile  work ]\n"
    "region = eu-west-1 \n"
    "; another\n"
    "aws_secret_access_key = a=b/c+\n"
    "[workshop]\n"
    "region=no\n";

TEST(AwsProfile, SectionsAndSettingsAreTold) {
  EXPECT_THAT(parse_profile(kText, "default"),
              ElementsAre(Pair("aws_access_key_id", "AKDEFAULT"), Pair("s3", "")));
  EXPECT_THAT(parse_profile(kText, "work"),
              ElementsAre(Pair("aws_secret_access_key", "a=b/c+"), Pair("region", "eu-west-1")));
  EXPECT_THAT(parse_profile(kText, "none"), IsEmpty());
  EXPECT_THAT(parse_profile("[x", "x"), IsEmpty());
  EXPECT_THAT(parse_profile("", "default"), IsEmpty());
}

TEST(AwsProfile, TheCredentialsFileComesBeforeTheConfigFile) {
  const TemporaryFolder home;
  write_file(home.path() / ".aws/credentials", "[p]\nregion=first\naws_access_key_id=A\n");
  write_file(home.path() / ".aws/config", "[profile p]\nregion=second\nrole_arn=r\n");

  EXPECT_THAT(
      read_profile({{"HOME", home.path().string()}, {"AWS_PROFILE", "p"}}),
      ElementsAre(Pair("aws_access_key_id", "A"), Pair("region", "first"), Pair("role_arn", "r")));
  EXPECT_THAT(read_profile({{"HOME", "/nowhere"}}), IsEmpty());
}

TEST(AwsProfile, OtherFilesCanBeNamed) {
  const TemporaryFolder home;
  write_file(home.path() / "mine", "[default]\nregion=here\n");

  EXPECT_THAT(read_profile({{"HOME", home.path().string()}, {"AWS_CONFIG_FILE", "~/mine"}}),
              ElementsAre(Pair("region", "here")));
}

}  // namespace
}  // namespace entrypoint
