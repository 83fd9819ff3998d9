// SPDX-License-Identifier: Apache-2.0
// The record of one rank, read back in bounded memory (docs/reference/file_formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrypoint/report/durations.h"
#include "entrypoint/report/step_line.h"

namespace entrypoint::report {

struct Span {
  int activity = 0;
  std::int64_t begin = 0;     ///< [us] since that of the step
  std::int64_t duration = 0;  ///< [us]
  std::int64_t microbatch = -1;
  std::string name;
};

/// Spans of one of the few steps that all ranks keep.
struct StepSpans {
  std::int64_t step = 0;
  std::int64_t begin = 0;  ///< [us] since 1970
  std::vector<Span> spans;
};

struct Loss {
  std::int64_t step = 0;
  double value = 0;  ///< may be no number, or infinite
  bool training = true;
};

/// A reading of a rank's memory.
struct Memory {
  double time = 0;  ///< [s] since 1970
  std::int64_t peak = 0;
  std::map<std::string, std::int64_t> kinds;  ///< as smp.memory_summary says
};

struct Event {
  double time = 0;  ///< [s] since 1970
  std::string kind;
  std::string text;
};

struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

struct RankRecord {
  std::filesystem::path file;
  int rank = 0;
  int first_rank = 0;  ///< of its host
  std::string host;
  std::string job;              ///< equal for all ranks of one job
  nlohmann::json facts;         ///< of the job, see metrics::note_job(); may be null
  nlohmann::json partition;     ///< of rank 0; may be null
  std::vector<StepLine> lines;  ///< at most kMostLines, of equally many steps
  StepLine all;                 ///< of all steps
  StepLine later;               ///< without the first ones, in which things warm up
  Durations periods;            ///< of the later steps
  std::vector<StepSpans> spans;
  std::vector<Loss> losses;
  std::vector<Memory> memory;
  std::int64_t state_by_formula = 0;  ///< [bytes] of the model's state; 0: not known
  std::vector<Event> events;
  std::map<int, Traffic> sent;        ///< by rank
  std::vector<std::string> problems;  ///< with the file, as sentences
};

inline constexpr std::size_t kMostLines = 1024;

/// Never throws for what is in the file: what cannot be read is a problem, and the rest counts.
RankRecord read_rank_record(const std::filesystem::path& file);

}  // namespace entrypoint::report
