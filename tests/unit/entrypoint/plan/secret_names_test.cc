// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secret_names.h"

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

TEST(SecretNames, AreReadByWord) {
  const SecretNames names;

  for (const char* name :
       {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "password", "--api-key", "apiKey", "api_key",
        "APIKEY", "db.password", "SM_HP_HF-TOKEN", "private", "passphrase", "db_pass", "--pwd",
        "bearer", "session-cookie", "SENTRY_DSN", "storage_sas", "connectionString",
        "public_key_password"}) {
    EXPECT_EQ(names.of(name), Secrecy::kSure) << name;
  }
  for (const char* name : {"key", "encryption_key", "wandbKey", "SM_HP_HTTP-AUTH", "--auth"}) {
    EXPECT_EQ(names.of(name), Secrecy::kLikely) << name;
  }
  for (const char* name : {"tokenizer",
                           "max_tokens",
                           "keyboard",
                           "compass",
                           "secretary",
                           "lr",
                           "",
                           "public_key",
                           "key_bits",
                           "num_key_value_heads",
                           "pass_rate",
                           "auth_type",
                           "SSH_AUTH_SOCK",
                           "PWD",
                           "OLDPWD",
                           "sas7",
                           "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
                           "private_ip",
                           "SM_LAUNCH_SSH_KEY",
                           "SM_LAUNCH_SECRETS"}) {
    EXPECT_EQ(names.of(name), Secrecy::kNone) << name;
  }
}

TEST(SecretNames, AreMoreWhereAJobNamesThem) {
  const SecretNames names("licence, my-thing,,");

  EXPECT_EQ(names.of("SM_HP_LICENCE"), Secrecy::kSure);
  EXPECT_EQ(names.of("--my_thing"), Secrecy::kSure);
  EXPECT_EQ(names.of("licences"), Secrecy::kNone);
  EXPECT_EQ(names.of("lr"), Secrecy::kNone);
}

}  // namespace
}  // namespace entrypoint
