// SPDX-License-Identifier: Apache-2.0
// Every path of a job tree, as a function of its base folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace opt_ml {

/// Paths under the base folder: /opt/ml, or that of SAGEMAKER_BASE_DIR.
class Layout {
 public:
  static constexpr const char* kDefaultBase = "/opt/ml";

  explicit Layout(std::filesystem::path base = kDefaultBase) : base_(std::move(base)) {}

  [[nodiscard]] const std::filesystem::path& base() const { return base_; }

  // Inputs, which the service provides.
  [[nodiscard]] std::filesystem::path input() const { return base_ / "input"; }
  [[nodiscard]] std::filesystem::path input_config() const { return input() / "config"; }
  [[nodiscard]] std::filesystem::path hyperparameters() const {
    return input_config() / "hyperparameters.json";
  }
  [[nodiscard]] std::filesystem::path resource_config() const {
    return input_config() / "resourceconfig.json";
  }
  [[nodiscard]] std::filesystem::path input_data_config() const {
    return input_config() / "inputdataconfig.json";
  }
  [[nodiscard]] std::filesystem::path tensorboard_config() const {
    return input_config() / "tensorboardoutputconfig.json";
  }
  [[nodiscard]] std::filesystem::path checkpoint_config() const {
    return input_config() / "checkpointconfig.json";
  }
  [[nodiscard]] std::filesystem::path input_data() const { return input() / "data"; }
  [[nodiscard]] std::filesystem::path channel(std::string_view name) const {
    return input_data() / name;
  }

  /// User code, and the working directory of the user's process.
  [[nodiscard]] std::filesystem::path code() const { return base_ / "code"; }

  // Outputs, which the job leaves.
  [[nodiscard]] std::filesystem::path model() const { return base_ / "model"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return base_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path output() const { return base_ / "output"; }
  [[nodiscard]] std::filesystem::path output_data() const { return output() / "data"; }
  [[nodiscard]] std::filesystem::path output_intermediate() const {
    return output() / "intermediate";
  }
  /// Copies on their way to S3; outside of what is watched, gone with the job.
  [[nodiscard]] std::filesystem::path sync_staging() const {
    return output() / ".tmp.sagemaker_s3_sync";
  }
  [[nodiscard]] std::filesystem::path success_marker() const { return output() / "success"; }
  [[nodiscard]] std::filesystem::path failure_marker() const { return output() / "failure"; }

  /// Values too long for an environment variable, one file each.
  [[nodiscard]] std::filesystem::path long_variable(std::string_view name) const {
    return input_config() / "sm_env" / name;
  }
  /// Certificate authorities of the machine and of the job together.
  [[nodiscard]] std::filesystem::path certificates() const {
    return input_config() / "sm_env" / "certificates.pem";
  }

 private:
  std::filesystem::path base_;
};

}  // namespace opt_ml
