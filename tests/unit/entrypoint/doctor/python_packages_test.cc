// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/python_packages.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class PythonPackages : public testing::Test {
 protected:
  void put(const fs::path& path, const std::string& text = "") const {
    fs::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text;
  }
  [[nodiscard]] fs::path root() const { return folder_.path(); }

  LaunchFolder folder_;
};

TEST_F(PythonPackages, AreThoseOfTheVirtualEnvironmentAndNotOfItsBase) {
  put("base/bin/python3.11");
  put("base/lib/python3.11/site-packages/mpi4py/__init__.py");
  put("venv/pyvenv.cfg",
      "home = " + (root() / "base/bin").string() + "\ninclude-system-site-packages = false\n");
  put("venv/lib/python3.11/site-packages/torch/version.py",
      "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n");
  fs::create_directories(root() / "venv/bin");
  fs::create_symlink(root() / "base/bin/python3.11", root() / "venv/bin/python3");

  const auto folders = package_folders(root() / "venv/bin/python3");

  EXPECT_THAT(folders, ElementsAre(root() / "venv/lib/python3.11/site-packages"));
  EXPECT_EQ(torch_version(folders), "2.11.0+cu130");
  EXPECT_FALSE(has_package(folders, "mpi4py"));
}

TEST_F(PythonPackages, IncludeTheBaseWhereTheEnvironmentSaysSo) {
  put("base/lib/python3.11/site-packages/mpi4py/__init__.py");
  put("venv/pyvenv.cfg",
      "home = " + (root() / "base/bin").string() + "\ninclude-system-site-packages = true\n");
  put("venv/bin/python3");

  EXPECT_TRUE(has_package(package_folders(root() / "venv/bin/python3"), "mpi4py"));
}

TEST_F(PythonPackages, AreFoundBesideTheRealFileOfALink) {
  put("opt/bin/python3.11");
  put("opt/lib/python3.11/site-packages/mpi4py/__init__.py");
  fs::create_directories(root() / "usr/bin");
  fs::create_symlink(root() / "opt/bin/python3.11", root() / "usr/bin/python3");

  EXPECT_TRUE(has_package(package_folders(root() / "usr/bin/python3"), "mpi4py"));
}

TEST_F(PythonPackages, StartWithPythonpath) {
  put("extra/mpi4py.py");

  const auto folders = package_folders({}, (root() / "extra").string() + "::/no/such/folder");

  EXPECT_THAT(folders, ElementsAre(root() / "extra"));
  EXPECT_TRUE(has_package(folders, "mpi4py"));
  EXPECT_EQ(torch_version(folders), "");
}

TEST_F(PythonPackages, AnInterpreterSaysWhichVersionItWouldImport) {
  put("bin/python3", "#!/bin/sh\n[ $3 = torch ] && echo $VERSION\n");
  fs::permissions(root() / "bin/python3", fs::perms(0755));
  const auto version = [&](const char* package) {
    return installed_version(root() / "bin/python3", package,
                             {"PATH=/usr/bin:/bin", "VERSION=2.5.0"});
  };

  EXPECT_EQ(version("torch"), "2.5.0");
  EXPECT_EQ(version("jax"), "");
  EXPECT_EQ(installed_version(root() / "bin/python3", "torch", {"VERSION="}), "");
}

}  // namespace
}  // namespace entrypoint
