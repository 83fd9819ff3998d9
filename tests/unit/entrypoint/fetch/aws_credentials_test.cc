// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/aws_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/fetch/scripted_client.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

constexpr const char* kRole =
    R"({"AccessKeyId":"AK","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-02T03:04:05Z"})";

/// A chain with all that it refers to.
struct CredentialsCase {
  smp::Variables environment;
  ProfileSettings profile;
  ScriptedClient client{{}};
  NotedWaits waits;
  CredentialChain chain{environment, profile, client, waits.policy};

  std::string error() {
    return message_of([this] { chain.get(); });
  }
};

TEST(CredentialChain, VariablesComeFirstAndAskNobody) {
  CredentialsCase job{.environment = {{"AWS_ACCESS_KEY_ID", "A"},
                                      {"AWS_SECRET_ACCESS_KEY", "S"},
                                      {"AWS_SESSION_TOKEN", "T"},
                                      {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x"}},
                      .profile = {{"aws_access_key_id", "P"}, {"aws_secret_access_key", "Q"}}};

  EXPECT_EQ(job.chain.get().access_key, "A");
  EXPECT_EQ(job.chain.get().session_token, "T");
  EXPECT_THAT(job.client.requests, IsEmpty());
}

TEST(CredentialChain, AProfileComesNext) {
  CredentialsCase job{.environment = {{"AWS_ACCESS_KEY_ID", "half"}},
                      .profile = {{"aws_access_key_id", "P"}, {"aws_secret_access_key", "Q"}}};

  EXPECT_EQ(job.chain.get().access_key, "P");
  EXPECT_EQ(job.chain.get().origin, "profile default");
}

TEST(CredentialChain, AProfileThatWasAskedForMustBeThereAndUsable) {
  CredentialsCase missing{.environment = {{"AWS_PROFILE", "p"}}};
  CredentialsCase other{.profile = {{"role_arn", "arn:x"}}};

  EXPECT_THAT(missing.error(), HasSubstr("AWS_PROFILE=p: no such profile"));
  EXPECT_THAT(other.error(), HasSubstr("gets its credentials by role_arn"));
}

TEST(CredentialChain, AContainersRelativeAddressIsTheAgents) {
  CredentialsCase job{
      .environment = {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/id"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic x"}},
      .client = ScriptedClient({answer(500), answer(200, kRole)})};

  const Credentials found = job.chain.get();

  EXPECT_EQ(found.secret_key, "s");
  EXPECT_EQ(found.session_token, "t");
  EXPECT_EQ(std::chrono::system_clock::to_time_t(*found.expires), 1893553445);
  ASSERT_EQ(job.client.requests.size(), 2U);
  EXPECT_EQ(job.client.requests[1].url, "http://169.254.170.2/v2/credentials/id");
  EXPECT_THAT(job.client.requests[1].headers, ElementsAre("Authorization: Basic x"));
  EXPECT_TRUE(job.client.requests[1].direct);
}

TEST(CredentialChain, ATokenFileIsReadAndWins) {
  const TemporaryFolder folder;
  write_file(folder.path() / "token", "fresh\n");
  CredentialsCase job{
      .environment = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:1/c"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "stale"},
                      {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                       (folder.path() / "token").string()}},
      .client = ScriptedClient({answer(200, kRole)})};

  job.chain.get();

  EXPECT_THAT(job.client.requests[0].headers, ElementsAre("Authorization: fresh"));
}

TEST(CredentialChain, PlainHttpIsForAddressesOfThisHostOnly) {
  for (const char* url : {"https://any.host/x", "http://localhost/x", "http://127.0.0.1:80/x",
                          "http://169.254.170.2/x", "http://169.254.170.23", "http://[::1]:9/",
                          "http://[fd00:ec2::23]/v1", "http://[0:0:0:0:0:0:0:1]/",
                          "http://[FD00:EC2:0::23]/", "HTTP://LOCALHOST/x", "HTTPS://any.host/x",
                          "http://127.0.0.1#@evil.host/", "http://127.0.0.1?@evil.host/"}) {
    EXPECT_TRUE(is_trusted_credential_url(url)) << url;
  }
  for (const char* url : {"http://evil.host/x",
                          "http://localhost.evil/x",
                          "ftp://localhost/",
                          "http://169.254.169.254/x",
                          "",
                          "http://",
                          "localhost/x",
                          "http://localhost:x@127.0.0.9:18080/",
                          "http://localhost@evil.host/",
                          "http://@localhost/",
                          "http://:x@localhost/",
                          "https://user:x@any.host/",
                          "http://localhost%40evil.host/",
                          "http://localhost%2eevil.host/",
                          "http://localhost\\@evil.host/",
                          "http://evil.host\\@localhost/",
                          "http://[::1].evil.host/",
                          "http://[::1]@evil.host/",
                          "http://[::ffff:127.0.0.9]/",
                          "http://[::2]/",
                          "http://localhost /",
                          "http://localhost:80:x@evil.host/",
                          "http://127.0.0.10/"}) {
    EXPECT_FALSE(is_trusted_credential_url(url)) << url;
  }
  CredentialsCase job{
      .environment = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.host/x"}}};
  EXPECT_THAT(job.error(), HasSubstr("use https"));
  EXPECT_THAT(job.client.requests, IsEmpty());
}

TEST(CredentialChain, ARelativeAddressLeadsToNobodyElse) {
  for (const char* path : {":x@127.0.0.9:18080/", "@evil.host/", ".evil.host/", "54/x", ":x/"}) {
    CredentialsCase job{.environment = {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", path},
                                        {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret"}}};

    EXPECT_THAT(job.error(), HasSubstr("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI leads to ")) << path;
    EXPECT_THAT(job.client.requests, IsEmpty());
  }
}

TEST(CredentialChain, AnInstancesRoleIsFetchedWithASessionToken) {
  CredentialsCase job{.client = ScriptedClient(
                          {answer(200, "session"), answer(200, "role-1\n"), answer(200, kRole)})};

  EXPECT_EQ(job.chain.get().origin, "instance role role-1");

  const auto& requests = job.client.requests;
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].method, "PUT");
  EXPECT_EQ(requests[0].url, "http://169.254.169.254/latest/api/token");
  EXPECT_EQ(requests[2].url,
            "http://169.254.169.254/latest/meta-data/iam/security-credentials/role-1");
  EXPECT_THAT(requests[2].headers, ElementsAre("X-aws-ec2-metadata-token: session"));
}

TEST(CredentialChain, NobodyAnywhereIsSaidOnce) {
  CredentialsCase job;

  const std::string error = job.error();

  EXPECT_THAT(error, HasSubstr("AWS_ACCESS_KEY_ID is not set; no keys of profile default"));
  EXPECT_THAT(error, HasSubstr("instance metadata at http://169.254.169.254: no answer after 2 "
                               "attempts: Connection refused"));
  EXPECT_EQ(job.client.requests.size(), 2U);
}

TEST(CredentialChain, KeysAreRenewedBeforeTheyExpire) {
  CredentialsCase job{.environment = {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x"}},
                      .client = ScriptedClient({answer(200, kRole), answer(200, kRole)})};
  const auto expiry = std::chrono::system_clock::from_time_t(1893553445);

  job.chain.get(expiry - std::chrono::hours(1));
  job.chain.get(expiry - std::chrono::minutes(6));
  EXPECT_EQ(job.client.requests.size(), 1U);
  job.chain.get(expiry - std::chrono::minutes(4));
  EXPECT_EQ(job.client.requests.size(), 2U);
}

}  // namespace
}  // namespace entrypoint::fetch
