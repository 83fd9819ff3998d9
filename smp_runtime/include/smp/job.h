// SPDX-License-Identifier: Apache-2.0
// A job as its training program sees it: hyperparameters, channels and folders, as `train` and the
// service lay them out. Without Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// A job's tree, read once. Cheap to copy; any thread may use it.
class Job {
 public:
  /// The tree of this process: where SAGEMAKER_BASE_DIR, else SM_INPUT_DIR, says that it is, else
  /// /opt/ml. Throws ConfigError for files that are no JSON or of another shape, HostError for
  /// files that cannot be read. A tree without files has no hyperparameters and no channels.
  static Job from_environment();
  /// The tree in that folder; throws likewise.
  static Job from_folder(const std::filesystem::path& base);

  /// @name Hyperparameters
  /// Without `otherwise` a hyperparameter has to be there: ConfigError names those that are near.
  /// One of another kind is a ConfigError in any case, and null counts as absent.
  /// @{

  /// Names of all hyperparameters, sorted, without those that `train` consumes (sagemaker_*).
  [[nodiscard]] std::vector<std::string> hyperparameters() const;
  /// True if the hyperparameter is set, and not null.
  [[nodiscard]] bool has(std::string_view hyperparameter) const;
  /// A whole number of 64 bits.
  [[nodiscard]] std::int64_t integer(std::string_view name,
                                     std::optional<std::int64_t> otherwise = {}) const;
  /// Any number, NaN and infinity included.
  [[nodiscard]] double number(std::string_view name, std::optional<double> otherwise = {}) const;
  /// true/false, 1/0, yes/no, on/off, in any case.
  [[nodiscard]] bool flag(std::string_view name, std::optional<bool> otherwise = {}) const;
  /// Text as it is; other values as JSON, such as `3` or `{"a":[1,2]}`.
  [[nodiscard]] std::string text(std::string_view name,
                                 const std::optional<std::string>& otherwise = {}) const;

  /// @}

  /// Names of the input channels, sorted.
  [[nodiscard]] std::vector<std::string> channels() const;
  /// The folder of a channel. Throws ConfigError, which says which ones there are.
  [[nodiscard]] std::filesystem::path channel(std::string_view name) const;

  /// Folder of the result: the service uploads it when the job has ended well.
  [[nodiscard]] std::filesystem::path model_folder() const;
  /// Folder of checkpoints, which survives a restart of the job.
  [[nodiscard]] std::filesystem::path checkpoint_folder() const;
  /// Other results, uploaded however the job ends.
  [[nodiscard]] std::filesystem::path output_folder() const;

 private:
  struct Content;
  explicit Job(std::shared_ptr<const Content> content);

  std::shared_ptr<const Content> content_;
};

}  // namespace smp
