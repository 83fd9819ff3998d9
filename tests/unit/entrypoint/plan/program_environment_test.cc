// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/program_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const opt_ml::Layout kTree("/opt/ml");

TEST(ExtraCertificates, NoneWithoutTheVariable) {
  EXPECT_EQ(plan_certificates({{"SMP_EXTRA_CA_FILE", ""}}, kTree), std::nullopt);
}

TEST(ExtraCertificates, EveryReaderIsToldOfTheJoinedFile) {
  const auto found = plan_certificates({{"SMP_EXTRA_CA_FILE", "/ca.pem"}}, kTree);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->extra, "/ca.pem");
  EXPECT_EQ(found->system, "/etc/ssl/certs/ca-certificates.crt");
  EXPECT_EQ(found->joined, "/opt/ml/input/config/sm_env/certificates.pem");
  EXPECT_THAT(found->variables, SizeIs(5));
  EXPECT_THAT(found->kept, IsEmpty());
}

TEST(ExtraCertificates, WhatTheUserTrustsAlreadyIsJoinedOrKept) {
  const auto found = plan_certificates({{"SMP_EXTRA_CA_FILE", "/ca.pem"},
                                        {"SSL_CERT_FILE", "/own.pem"},
                                        {"AWS_CA_BUNDLE", "/own.pem"},
                                        {"PIP_CERT", "/pip.pem"}},
                                       kTree);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->system, "/own.pem");
  EXPECT_THAT(found->variables, Contains("AWS_CA_BUNDLE"));
  EXPECT_THAT(found->kept, ElementsAre("PIP_CERT"));
}

}  // namespace
}  // namespace entrypoint
