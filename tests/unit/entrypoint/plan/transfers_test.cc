// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/config/aws_location.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;

JobBuilder job_with(const std::string& location) {
  return a_job().with_code({}).with("sagemaker_submit_directory", location);
}
CodeSource source_of(const JobConfig& job) { return choose_code_source(job); }
std::string source_error(const JobConfig& job) {
  return message_of([&] { source_of(job); });
}

TEST(CodeSource, WithoutALocationTheFolderIsTheCode) {
  EXPECT_FALSE(source_of(a_job().with_code({})).is_fetched());
  for (const char* same :
       {"/opt/ml/code", "/opt/ml/code/", "file:///opt/ml/code", "file://localhost/opt/ml/code/"}) {
    EXPECT_FALSE(source_of(job_with(same)).is_fetched()) << same;
  }
}

TEST(CodeSource, S3ObjectsAreTold) {
  const CodeSource source = source_of(job_with("s3://bucket//some/key.tar.gz"));

  EXPECT_EQ(source.kind, CodeSource::Kind::kS3);
  EXPECT_EQ(source.object, (S3Location{"bucket", "some/key.tar.gz"}));
  EXPECT_FALSE(source.over_existing);
}

TEST(CodeSource, LocalPathsAreToldWithAndWithoutAScheme) {
  EXPECT_EQ(source_of(job_with("/src/a.tar.gz")).path, "/src/a.tar.gz");
  EXPECT_EQ(source_of(job_with("file:///src/a.tar.gz")).path, "/src/a.tar.gz");
  EXPECT_EQ(source_of(job_with("/opt/ml/input/data/code/sourcedir.tar.gz")).path,
            "/opt/ml/input/data/code/sourcedir.tar.gz");
  EXPECT_EQ(source_of(job_with("/opt/ml/code-2")).path, "/opt/ml/code-2");
}

TEST(CodeSource, TheVariableCountsWhereTheHyperparameterIsAbsent) {
  const JobBuilder job =
      a_job().with_code({}).with_variable("SAGEMAKER_SUBMIT_DIRECTORY", "s3://b/variable");

  EXPECT_EQ(source_of(job).object.key, "variable");
  EXPECT_EQ(
      source_of(JobBuilder(job).with("sagemaker_submit_directory", "s3://b/parameter")).object.key,
      "parameter");
}

TEST(CodeSource, CodeThatIsThereIsKeptUnlessItIsToBeReplaced) {
  const JobBuilder job = a_job().with("sagemaker_submit_directory", "s3://b/k");

  EXPECT_FALSE(source_of(job).is_fetched());
  const CodeSource source = source_of(JobBuilder(job).with_variable("SM_LAUNCH_CODE", "replace"));
  EXPECT_TRUE(source.is_fetched());
  EXPECT_TRUE(source.over_existing);
}

TEST(CodeSource, WhatWasFetchedIsNotFetchedAgain) {
  const JobBuilder job = a_job()
                             .with("sagemaker_submit_directory", "s3://b/k")
                             .with_variable("SM_LAUNCH_CODE", "replace")
                             .with_code({.entries = {"x"}, .fetched = true});

  EXPECT_FALSE(source_of(job).is_fetched());
  EXPECT_EQ(skipped_fetch_warning(job), std::nullopt);
}

TEST(CodeSource, UnfetchableLocationsAreRefusedOnlyWhereTheyMatter) {
  for (const char* location :
       {"https://h/x.tar.gz", "git://h/x", "code.tar.gz", "s3://b", "s3://b/", "s3://b/prefix/",
        "s3:///key", "s3://bad bucket/k", "/opt/ml", "/opt/ml/code/sub"}) {
    EXPECT_THAT(source_error(job_with(location)),
                HasSubstr("sagemaker_submit_directory \"" + std::string(location) + "\": "))
        << location;
    EXPECT_EQ(source_error(a_job().with("sagemaker_submit_directory", location)), "") << location;
  }
  EXPECT_THAT(source_error(job_with("https://h/x")), HasSubstr("expecting s3 scheme"));
}

TEST(CodeSource, ASilentSkipIsAWarningWhenTheScriptIsMissing) {
  const JobBuilder job =
      a_job().with("sagemaker_submit_directory", "s3://b/k").with_code({.entries = {"other.py"}});

  EXPECT_THAT(skipped_fetch_warning(job).value_or(""),
              HasSubstr("/opt/ml/code holds code, so s3://b/k is not fetched, and train.py"));
  EXPECT_EQ(skipped_fetch_warning(a_job().with("sagemaker_submit_directory", "s3://b/k")),
            std::nullopt);
}

// --- package_repository, output_target -------------------------------------------------------

TEST(PackageRepository, ArnsAreTakenApart) {
  EXPECT_EQ(parse_package_repository(
                "arn:aws-cn:codeartifact:cn-north-1:123456789012:repository/dom/repo.x"),
            (PackageRepository{"aws-cn", "cn-north-1", "123456789012", "dom", "repo.x"}));
  for (const char* arn :
       {"", "arn", "arn:aws:s3:::b", "arn:aws:codeartifact:r:1:repository/dom",
        "arn:aws:codeartifact:r:1:domain/dom/repo", "arn:aws:codeartifact::1:repository/d/r",
        "arn:aws:codeartifact:r:1:repository/d/r/more",
        "arn:aws:codeartifact:r:1:repository/d/&x=y",
        "arn:aws:codeartifact:evil.host/:1:repository/d/r"}) {
    EXPECT_THAT(message_of([&] { parse_package_repository(arn); }), HasSubstr("CA_REPOSITORY_ARN"))
        << arn;
  }
}

std::string prefix_of(const JobConfig& job) {
  const auto target = choose_output_target(job);
  return target && target->prefix ? target->prefix->text() : "none";
}

TEST(OutputTarget, KeysAreLaidOutAsTheReferenceDoes) {
  const JobBuilder job = a_job().with_variable("TRAINING_JOB_NAME", "job-1");
  const auto with = [&](const char* location) {
    return prefix_of(JobBuilder(job).with("sagemaker_s3_output", location));
  };

  EXPECT_EQ(with("s3://b/a/b"), "s3://b/a/b/job-1/output/intermediate");
  EXPECT_EQ(with("s3://b//a/"), "s3://b/a/job-1/output/intermediate");
  EXPECT_EQ(with("s3://b"), "s3://b/job-1/output/intermediate");
  EXPECT_EQ(prefix_of(a_job().with("sagemaker_s3_output", "s3://b/p")),
            "s3://b/p/output/intermediate");
}

TEST(OutputTarget, OnlyS3AndFileAreKnown) {
  EXPECT_EQ(choose_output_target(a_job()), std::nullopt);
  EXPECT_EQ(prefix_of(a_job().with("sagemaker_s3_output", "file:///x")), "none");
  EXPECT_THAT(
      message_of([] { choose_output_target(a_job().with("sagemaker_s3_output", "ftp://h/x")); }),
      HasSubstr("sagemaker_s3_output \"ftp://h/x\""));
}

TEST(OutputTarget, AFolderThatIsThereIsThePlatforms) {
  JobConfig job = a_job().with("sagemaker_s3_output", "s3://b/p");
  job.files.intermediate_output_exists = true;

  EXPECT_EQ(choose_output_target(job), std::nullopt);
}

}  // namespace
}  // namespace entrypoint
