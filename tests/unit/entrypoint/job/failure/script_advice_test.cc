// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/job/failure/failure_text.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;

std::string advice(std::string_view error, std::string_view said = {}) {
  return script_advice({.error = error, .said = said});
}

TEST(ScriptAdvice, TellsSwitchesFromNamesThatNobodyDeclared) {
  for (const char* error :
       {"train.py: error: unrecognized arguments: True",
        "train.py: error: unrecognized arguments: --epochs 3 False",
        "train.py: error: argument --do_train: ignored explicit argument 'True'",
        "Error: Got unexpected extra argument (True)",
        "Error: Option '--do-train' does not take a value."}) {
    EXPECT_THAT(advice(error), HasSubstr("A flag takes no value")) << error;
  }
  for (const char* error : {"train.py: error: unrecognized arguments: --epochs 3 --lr 0.1",
                            "Error: No such option: --epochs"}) {
    EXPECT_THAT(advice(error), HasSubstr("parse_known_args()")) << error;
  }
  EXPECT_THAT(advice("main.py: error: unrecognized arguments: --lr 0.1",
                     "usage: main.py [--help] [overrides ...]"),
              HasSubstr("Hydra takes key=value: set SM_LAUNCH_ARGS=overrides"));
}

TEST(ScriptAdvice, KnowsWhyABuildDoesNotFindTheImagesPackages) {
  const ScriptError pips{.error = "ModuleNotFoundError: No module named 'torch'", .installs = true};

  EXPECT_THAT(script_advice(pips), HasSubstr("pip builds in isolation"));
  EXPECT_EQ(advice(pips.error), "");
}

TEST(ScriptAdvice, NamesTheModuleOfAScriptWithRelativeImports) {
  for (const char* error :
       {"ImportError: attempted relative import with no known parent package",
        "ImportError: attempted relative import beyond top-level package",
        "SystemError: Parent module '' not loaded, attempted relative import"}) {
    EXPECT_THAT(script_advice({.error = error, .module = "my_package.train"}),
                HasSubstr("set sagemaker_program to -m my_package.train"))
        << error;
    EXPECT_THAT(advice(error), HasSubstr("-m PACKAGE.NAME")) << error;
  }
}

TEST(ScriptAdvice, NamesThePortWhereRanksMeet) {
  EXPECT_THAT(advice("torch.distributed.DistNetworkError: … EADDRINUSE, message: …"),
              HasSubstr("MASTER_PORT"));
}

}  // namespace
}  // namespace entrypoint
