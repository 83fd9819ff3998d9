// SPDX-License-Identifier: Apache-2.0
// The step that `train --suggest` predicted for a job's settings, and the other candidates that it
// predicted (docs/reference/train.md). Pure but for reading the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace entrypoint::report {

struct JobNumbers;
struct JobRecord;

/// A composition of settings as the planner predicts it.
struct PredictedCandidate {
  std::int64_t memory_bytes = 0;  ///< of the fullest rank
  double samples_per_second = 0;
  bool fits = true;
  std::string settings;  ///< as JSON
};

struct SuggestedStep {
  double step_ms = 0;               ///< with the optimizer's
  double computed = 0, waited = 0;  ///< shares of it; waiting is for other stages of a pipeline
  std::int64_t memory_bytes = 0;    ///< of the kinds in smp.memory_summary, of the fullest rank
  std::int64_t sent_bytes = 0;      ///< by a rank, in the mean
  std::vector<PredictedCandidate> candidates;  ///< the suggested one first
};

/// The name of the file that `train --suggest --write` leaves beside the job's hyperparameters.
inline constexpr std::string_view kSuggestionFile = "suggestion.json";

/// The step that was suggested for these settings of a job. Never throws for what is in the file:
/// the text says, as a sentence, why there is none.
std::variant<SuggestedStep, std::string> read_suggested_step(const std::filesystem::path& file,
                                                             const nlohmann::json& settings);

/// Predicted and measured step of a job for which a suggestion is there, and all candidates.
nlohmann::json suggested_json(const JobRecord& job, const JobNumbers& numbers);

}  // namespace entrypoint::report
