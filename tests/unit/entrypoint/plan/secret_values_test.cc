// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "entrypoint/plan/secrets.h"

namespace entrypoint {
namespace {

SecretValues some_secrets() {
  const std::vector<Variable> environment{{.name = "SM_HP_HF_TOKEN", .value = "hf_abcdef"},
                                          {.name = "SM_HP_DB_PASSWORD", .value = "hf_abcdef123"},
                                          {.name = "SM_HP_API_KEY", .value = "short"},
                                          {.name = "SM_HP_MODEL", .value = "resnet50"}};
  return {environment, std::vector<std::string>{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI",
                                                "HOME=/root/home", "NO_VALUE"}};
}

TEST(SecretValues, AreMaskedWhereverTheyAppear) {
  const SecretValues secrets = some_secrets();

  EXPECT_EQ(secrets.mask("key 'wJalrXUtnFEMI', token=hf_abcdef; hf_abcdef"),
            "key '******', token=******; ******");
}

TEST(SecretValues, AreMaskedWholeWhenOneBeginsWithAnother) {
  EXPECT_EQ(some_secrets().mask("hf_abcdef123"), "******");
}

TEST(SecretValues, LeaveOtherValuesAndShortOnes) {
  EXPECT_EQ(some_secrets().mask("a short resnet50 in /root/home"),
            "a short resnet50 in /root/home");
}

TEST(SecretValues, TakePasswordsOutOfUrls) {
  const SecretValues none;

  EXPECT_EQ(none.mask("Looking in indexes: https://aws:eyJ0@d.codeartifact.aws/pypi/simple/ x@y"),
            "Looking in indexes: https://aws:******@d.codeartifact.aws/pypi/simple/ x@y");
  EXPECT_EQ(none.mask("http://host:8080/a@b https://host/ mail me@x"),
            "http://host:8080/a@b https://host/ mail me@x");
  EXPECT_EQ(none.mask("://://a:b@"), "://://a:******@");
}

}  // namespace
}  // namespace entrypoint
