// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/cluster_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;

constexpr const char* kKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey";

TEST(PublicKey, LosesItsCommentAndNothingElse) {
  EXPECT_EQ(parse_public_key(std::string(kKey) + " me@host\n"), kKey);
  EXPECT_EQ(parse_public_key(kKey), kKey);
}

TEST(PublicKey, IsRefusedWhenItCouldMeanMore) {
  for (const std::string line :
       {"", "ssh-ed25519", "ssh-ed25519 short", "ssh-ed25519 AAAA*AAAAAAAAAAAAAAA",
        "command=\"x\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey",
        "ssh-dss AAAAC3NzaC1lZDI1NTE5AAAA", "ssh-ed25519\tAAAAC3NzaC1lZDI1NTE5AAAAIKey"}) {
    EXPECT_EQ(parse_public_key(line), std::nullopt) << line;
  }
  EXPECT_EQ(parse_public_key("ssh-ed25519 " + std::string(5000, 'A')), std::nullopt);
}

TEST(MadeKey, IsAPairThatSshKeygenReadsBack) {
  const LaunchFolder folder;
  const auto environment = current_environment();

  const std::string key = make_key(folder.file("key"), environment);

  EXPECT_EQ(public_key_of(folder.file("key"), environment), key);
  EXPECT_THROW(public_key_of(folder.write("no_key", "text"), environment), smp::ConfigError);
}

TEST(SshdConfig, IsAcceptedBySshdAndLetsNobodyForward) {
  const LaunchFolder folder;
  make_key(folder.file("host_key"), current_environment());
  const auto config =
      folder.write("sshd_config", sshd_config_text({.folder = folder.path(),
                                                    .port = 2200,
                                                    .user = "root",
                                                    .listen_addresses = {"127.0.0.1"}}));

  // Asks sshd itself what it would do. It needs its folder, which a bare machine lacks.
  const Completed parsed = run_command(
      {.argv = {"sh", "-c",
                "mkdir -p /run/sshd; PATH=$PATH:/usr/sbin; exec $(command -v sshd) -T -f "
                "\"$0\" 2>&1",
                config.string()},
       .environment = current_environment()},
      std::chrono::seconds(20));

  ASSERT_TRUE(parsed.status.ok()) << parsed.output;
  for (const char* line : {"port 2200\n", "usepam no\n", "permitrootlogin without-password\n",
                           "disableforwarding yes\n", "passwordauthentication no\n",
                           "kbdinteractiveauthentication no\n", "permittty no\n",
                           "listenaddress 127.0.0.1:2200\n", "allowusers root\n"}) {
    EXPECT_THAT(parsed.output, HasSubstr(line));
  }
}

TEST(AuthorizedKey, IsRestrictedToTheMastersAddresses) {
  EXPECT_EQ(authorized_key_line(kKey, {"10.0.0.1", "10.0.0.2"}),
            std::string("restrict,from=\"10.0.0.1,10.0.0.2\" ") + kKey + "\n");
  EXPECT_EQ(authorized_key_line(kKey, {}), std::string("restrict ") + kKey + "\n");
}

TEST(KnownHost, NamesThePortWhenItIsAnother) {
  EXPECT_EQ(known_host_line("algo-2", 22, kKey), std::string("algo-2 ") + kKey + "\n");
  EXPECT_EQ(known_host_line("algo-2", 2222, kKey), std::string("[algo-2]:2222 ") + kKey + "\n");
}

TEST(SshConfig, PinsHostKeysAndNeverAsks) {
  const std::string text = ssh_config_text({.folder = "/f", .port = 22, .user = "root"});

  EXPECT_THAT(text, HasSubstr("StrictHostKeyChecking yes\n"));
  EXPECT_THAT(text, HasSubstr("BatchMode yes\n"));
  EXPECT_THAT(text, HasSubstr("UserKnownHostsFile /f/known_hosts/%n\n"));
}

TEST(HostName, TakesWhatTheServiceAndTheSdkWrite) {
  for (const char* host : {"algo-1", "algo-2-x7k2p", "sagemaker-local", "10.0.0.1", "a_b.c"}) {
    EXPECT_NO_THROW(check_host_name(host)) << host;
  }
}

TEST(HostName, RefusesWhatSshOrAFileNameWouldMisread) {
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a/b", "..", "a\nb", "a%n", "é"}) {
    EXPECT_THROW(check_host_name(host), smp::ConfigError) << host;
  }
}

}  // namespace
}  // namespace entrypoint
