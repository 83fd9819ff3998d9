// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/fetch/aws_services.h"
#include "tests/unit/entrypoint/fetch/scripted_client.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;

const PackageRepository kRepository{
    .partition = "aws", .region = "eu-west-1", .owner = "123", .domain = "dom", .name = "repo"};

struct CodeArtifactCase {
  ScriptedClient client{{}};
  smp::Variables environment{{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S"}};
  ProfileSettings profile{};
  NotedWaits waits{};
  CredentialChain chain{environment, profile, client, waits.policy};

  std::string index() { return package_index_url(kRepository, "", chain, client, waits.policy); }
  std::string error() {
    return message_of([this] { index(); });
  }
};

TEST(CodeArtifact, TokenAndEndpointMakeTheIndex) {
  CodeArtifactCase job{
      .client = ScriptedClient(
          {answer(200, R"({"authorizationToken":"t0k3n","expiration":1.0})"),
           answer(200, R"({"repositoryEndpoint":"https://d.example/pypi/repo/"})")})};

  EXPECT_EQ(job.index(), "https://aws:t0k3n@d.example/pypi/repo/simple/");

  EXPECT_EQ(job.client.requests[0].method, "POST");
  EXPECT_EQ(job.client.requests[0].url,
            "https://codeartifact.eu-west-1.amazonaws.com/v1/authorization-token?domain=dom&"
            "domain-owner=123");
  EXPECT_EQ(job.client.requests[1].url,
            "https://codeartifact.eu-west-1.amazonaws.com/v1/repository/endpoint?domain=dom&"
            "domain-owner=123&format=pypi&repository=repo");
  EXPECT_EQ(job.client.requests[1].signature->service, "codeartifact");
}

TEST(CodeArtifact, ErrorsNameTheRepositoryAndNeverTheToken) {
  CodeArtifactCase refused{.client = ScriptedClient({answer(403, R"({"message":"no rights"})")})};
  CodeArtifactCase odd{.client = ScriptedClient({answer(200, R"({"authorizationToken":"t0k3n"})"),
                                                 answer(200, R"({"repositoryEndpoint":7})")})};
  CodeArtifactCase silent;

  EXPECT_THAT(refused.error(), HasSubstr("repository repo of domain dom (123, eu-west-1): POST "
                                         "/v1/authorization-token answered HTTP status 403: no "
                                         "rights"));
  const std::string error = odd.error();
  EXPECT_THAT(error, HasSubstr("GET /v1/repository/endpoint answered HTTP status 200"));
  EXPECT_EQ(error.find("t0k3n"), std::string::npos);
  EXPECT_THAT(silent.error(), HasSubstr("no answer from https://codeartifact"));
}

TEST(CodeArtifact, AnEndpointThatIsNoUrlIsRefusedWithoutTheToken) {
  const std::string error = message_of([] { index_with_token("nonsense", "t0k3n"); });

  EXPECT_THAT(error, HasSubstr("\"nonsense\""));
  EXPECT_EQ(error.find("t0k3n"), std::string::npos);
}

}  // namespace
}  // namespace entrypoint::fetch
