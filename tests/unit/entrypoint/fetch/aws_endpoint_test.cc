// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "entrypoint/fetch/aws_services.h"

namespace entrypoint::fetch {
namespace {

TEST(AwsEndpoint, RegionsAreTakenInOrder) {
  const ProfileSettings profile{{"region", "of-profile"}};
  smp::Variables variables{
      {"AWS_REGION", "a"}, {"SAGEMAKER_REGION", "b"}, {"AWS_DEFAULT_REGION", "d"}};

  EXPECT_EQ(choose_region(variables, "c", profile), "a");
  variables.erase("AWS_REGION");
  EXPECT_EQ(choose_region(variables, "c", profile), "b");
  variables.erase("SAGEMAKER_REGION");
  EXPECT_EQ(choose_region(variables, "c", profile), "c");
  EXPECT_EQ(choose_region(variables, "", profile), "d");
  EXPECT_EQ(choose_region({}, "", profile), "of-profile");
  EXPECT_EQ(choose_region({}, "", {}), "us-east-1");
}

TEST(AwsEndpoint, OverridesAreTakenInOrder) {
  smp::Variables variables{{"S3_ENDPOINT_URL", "http://one/"},
                           {"AWS_ENDPOINT_URL_S3", "http://two"},
                           {"AWS_ENDPOINT_URL", "http://three"}};

  EXPECT_EQ(choose_s3_endpoint(variables, "r").override_url, "http://one");
  variables.erase("S3_ENDPOINT_URL");
  EXPECT_EQ(choose_s3_endpoint(variables, "r").override_url, "http://two");
  variables["AWS_ENDPOINT_URL_S3"] = "";
  EXPECT_EQ(choose_s3_endpoint(variables, "r").override_url, "http://three");
  EXPECT_EQ(choose_s3_endpoint({}, "r").override_url, "");
}

TEST(AwsEndpoint, UrlsAreOfHostOrPathStyle) {
  const S3Location object{.bucket = "bucket", .key = "a b/ü+%.tgz"};

  EXPECT_EQ(object_url({.region = "eu-west-1"}, object),
            "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC%2B%25.tgz");
  EXPECT_EQ(object_url({.region = "cn-north-1"}, {"b", "k"}),
            "https://b.s3.cn-north-1.amazonaws.com.cn/k");
  EXPECT_EQ(object_url({.region = "r"}, {"dotted.bucket", "k"}),
            "https://s3.r.amazonaws.com/dotted.bucket/k");
  EXPECT_EQ(object_url({.region = "r", .override_url = "http://h:9000"}, object),
            "http://h:9000/bucket/a%20b/%C3%BC%2B%25.tgz");
}

}  // namespace
}  // namespace entrypoint::fetch
