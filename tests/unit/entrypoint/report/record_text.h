// SPDX-License-Identifier: Apache-2.0
// A rank's record as a program would have written it.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace entrypoint::report {

inline std::string header_text(int rank, const std::string& job = "job") {
  return fmt::format(
      R"({{"format":1,"rank":{},"first_rank":0,"host":"algo-1","job":"{}","columns":["step","steps","total_us","new_column","forward_us"]}})"
      "\n",
      rank, job);
}

inline std::string step_text(long step, long total, long forward) {
  return fmt::format("[{},1,{},7,{}]\n", step, total, forward);
}

inline void write_text(const std::string& file, const std::string& text) {
  std::ofstream(file) << text;
}

}  // namespace entrypoint::report
