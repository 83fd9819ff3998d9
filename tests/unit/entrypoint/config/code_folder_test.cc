// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/code_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <elf.h>
#include <gtest/gtest.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;
using testing_support::TemporaryFolder;

void write(const fs::path& file, const std::string& content, bool executable) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
  fs::permissions(file, executable ? fs::perms(0755) : fs::perms(0644));
}

/// The head of a program of that machine.
std::string elf_of(Elf64_Half machine) {
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_machine = machine;
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

Elf64_Half own_machine() {
  Elf64_Ehdr header{};
  std::ifstream("/proc/self/exe", std::ios::binary)
      .read(reinterpret_cast<char*>(&header), sizeof(header));
  return header.e_machine;
}

class ProgramFileTest : public ::testing::Test {
 protected:
  ProgramFile find(const std::string& name) const {
    return find_program_file(code_, name, "relative:" + (image_ / "bin").string() + ":/nowhere");
  }

  const TemporaryFolder folder_;
  const fs::path code_ = folder_.path() / "code";
  const fs::path image_ = folder_.path() / "image";
};

TEST_F(ProgramFileTest, AScriptOfTheCodeFolderIsNoBinary) {
  write(code_ / "run", "#!/bin/sh\necho hello from a script that is longer than a header\n", false);

  const ProgramFile file = find("run");

  EXPECT_EQ(file.path, code_ / "run");
  EXPECT_TRUE(file.is_file);
  EXPECT_FALSE(file.is_binary);
  EXPECT_TRUE(file.names_interpreter);
  EXPECT_FALSE(file.is_executable);
  EXPECT_FALSE(file.in_image);
}

TEST_F(ProgramFileTest, ABinarySaysWhichMachineItIsFor) {
  write(code_ / "ours", elf_of(own_machine()), true);
  write(code_ / "theirs", elf_of(own_machine() == EM_AARCH64 ? EM_X86_64 : EM_AARCH64), true);
  write(code_ / "cut", elf_of(EM_ARM).substr(0, 10), true);

  EXPECT_TRUE(find("ours").is_binary);
  EXPECT_TRUE(find("ours").is_executable);
  EXPECT_EQ(find("ours").other_machine, "");
  EXPECT_EQ(find("theirs").other_machine, own_machine() == EM_AARCH64 ? "x86-64" : "AArch64");
  EXPECT_FALSE(find("cut").is_binary);
}

TEST_F(ProgramFileTest, AFirstLineThatTheKernelCannotFollowIsNamed) {
  write(image_ / "bin/tool", "", true);
  const auto fault = [&](const std::string& first_line) {
    write(code_ / "run", first_line + "\necho hello\n", true);
    return find("run").first_line_fault;
  };

  for (const char* good : {"#!/bin/sh", "#!/bin/sh -e", "#! /usr/bin/env tool",
                           "#!/usr/bin/env -S X=1 tool -u", "echo no first line\r", ""}) {
    EXPECT_EQ(fault(good), "") << good;
  }
  for (const char* windows : {"#!/bin/sh\r", "#!/usr/bin/env tool\r"}) {
    EXPECT_THAT(fault(windows), ::testing::HasSubstr("carriage return")) << windows;
  }
  EXPECT_THAT(fault("\xEF\xBB\xBF#!/bin/sh"), ::testing::HasSubstr("byte order mark"));
  EXPECT_THAT(fault("#!/nowhere/bash"), ::testing::HasSubstr("names /nowhere/bash"));
  EXPECT_THAT(fault("#!/usr/bin/env absent"), ::testing::HasSubstr("asks for absent"));
}

TEST_F(ProgramFileTest, TheCodeFolderComesBeforeThePath) {
  write(image_ / "bin/trainer", elf_of(own_machine()), true);

  const ProgramFile of_image = find("trainer");
  write(code_ / "trainer", elf_of(own_machine()), true);
  const ProgramFile of_code = find("trainer");

  EXPECT_EQ(of_image.path, image_ / "bin/trainer");
  EXPECT_TRUE(of_image.in_image);
  EXPECT_EQ(of_code.path, code_ / "trainer");
  EXPECT_FALSE(of_code.in_image);
}

TEST_F(ProgramFileTest, OnlyBareNamesWithoutAScriptsEndingAreLookedForOnThePath) {
  for (const char* name : {"train.py", "run.sh", "tools/trainer"}) {
    write(image_ / "bin" / name, "", true);
    EXPECT_TRUE(find(name).path.empty()) << name;
  }
  EXPECT_TRUE(find("absent").path.empty());
  EXPECT_TRUE(find("").path.empty());
}

TEST_F(ProgramFileTest, AnAbsolutePathIsOfTheImage) {
  write(image_ / "trainer", "", false);
  fs::create_directories(image_ / "folder");

  EXPECT_TRUE(find((image_ / "trainer").string()).in_image);
  EXPECT_FALSE(find((image_ / "trainer").string()).is_executable);
  EXPECT_FALSE(find((image_ / "folder").string()).is_file);
  EXPECT_TRUE(find((image_ / "absent").string()).path.empty());
}

TEST_F(ProgramFileTest, TheLauncherIsNotFoundByItsNameButByItsPath) {
  const fs::path self = fs::canonical("/proc/self/exe");
  fs::create_directories(image_ / "bin");
  fs::create_symlink(self, image_ / "bin/train");

  EXPECT_TRUE(find("train").path.empty());
  EXPECT_TRUE(find(self.string()).is_launcher);
}

}  // namespace
}  // namespace entrypoint
