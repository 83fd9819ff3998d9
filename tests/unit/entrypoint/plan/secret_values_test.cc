// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secret_values.h"

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

SecretValues values(std::initializer_list<std::string_view> sure) {
  SecretValues result;
  for (const std::string_view value : sure) result.add(value, Secrecy::kSure);
  return result;
}

TEST(SecretValues, AreMaskedWhereverTheyAppear) {
  const SecretValues secrets = values({"wJalrXUtnFEMI", "hf_abcdef"});

  EXPECT_EQ(secrets.mask("key 'wJalrXUtnFEMI', token=hf_abcdef; hf_abcdef"),
            "key '******', token=******; ******");
}

TEST(SecretValues, AreMaskedWholeWhenOneBeginsWithAnother) {
  EXPECT_EQ(values({"hf_abcdef", "hf_abcdef123"}).mask("hf_abcdef123"), "******");
}

TEST(SecretValues, LeaveShortOnesNumbersAndTokens) {
  const SecretValues secrets = values(
      {"a", "no", "true", "short", "1000000", "0.00001", "******", "<|endoftext|>", "[UNKNOWN]"});

  const std::string text =
      "a short step 1000000: no loss of 0.00001 is true ****** [UNKNOWN] <|endoftext|>";
  EXPECT_EQ(secrets.mask(text), text);
  EXPECT_EQ(secrets.masked(text), std::nullopt);
}

TEST(SecretValues, LeaveWordsWhoseNameIsNoSureSign) {
  SecretValues secrets;
  for (const char* word : {"caption", "input_ids", "data/train.csv"}) {
    secrets.add(word, Secrecy::kLikely);
  }
  secrets.add("k3yk3yk3y", Secrecy::kLikely);
  secrets.add("correcthorse", Secrecy::kSure);

  EXPECT_EQ(secrets.mask("caption input_ids data/train.csv k3yk3yk3y correcthorse"),
            "caption input_ids data/train.csv ****** ******");
}

TEST(SecretValues, AreFoundAsJsonPythonAndUrlsWriteThem) {
  const SecretValues secrets = values({"it's a \"caf\303\251\"\\"});

  EXPECT_EQ(secrets.mask(R"({"p": "it's a \"caf\u00e9\"\\"})"), R"({"p": "******"})");
  EXPECT_EQ(secrets.mask("{'p': 'it\\'s a \"caf\303\251\"\\\\'}"), "{'p': '******'}");
  EXPECT_EQ(secrets.mask("p=it%27s%20a%20%22caf%C3%A9%22%5C&x"), "p=******&x");
}

TEST(SecretValues, OfSeveralLinesAreFoundLineByLine) {
  const SecretValues secrets = values({"-----BEGIN-----\r\nMIIBVgIBADAN\n  c2VjcmV0\n\n"});

  EXPECT_EQ(secrets.mask("MIIBVgIBADAN"), "******");
  EXPECT_EQ(secrets.mask("| c2VjcmV0 |"), "| ****** |");
}

TEST(SecretValues, TakePasswordsOutOfUrls) {
  const SecretValues none;

  EXPECT_EQ(none.mask("Looking in indexes: https://aws:eyJ0@d.codeartifact.aws/pypi/simple/ x@y"),
            "Looking in indexes: https://aws:******@d.codeartifact.aws/pypi/simple/ x@y");
  EXPECT_EQ(none.mask("'postgres://u:p@ss@h/db', \"redis://:pw@h\", postgres://u:p/w#@h/db"),
            "'postgres://u:******@h/db', \"redis://:******@h\", postgres://u:******@h/db");
  EXPECT_EQ(none.mask("git+https://ghp_1@github.com/a HTTPS://sk_1:@api.x ssh://git@github.com"),
            "git+https://******@github.com/a HTTPS://******:@api.x ssh://git@github.com");
  EXPECT_EQ(none.mask("://://a:b@"), "://://a:******@");
}

TEST(SecretValues, LeaveUrlsWithoutAny) {
  const SecretValues none;

  for (const char* text : {"http://host:8080/a@b https://host/ mail me@x", "http://[::1]:80/a@b",
                           "s3://bucket/key:with@colon", "://", "file:///a:b@c"}) {
    EXPECT_EQ(none.mask(text), text);
  }
}

TEST(SecretValues, InUrlsAreFoundAloneToo) {
  SecretValues secrets;
  secrets.add_url_passwords("postgres://u:p%40ssword@h/db");

  EXPECT_EQ(secrets.mask("login with p@ssword (p%40ssword)"), "login with ****** (******)");
}

}  // namespace
}  // namespace entrypoint
