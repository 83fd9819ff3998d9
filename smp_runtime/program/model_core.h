// SPDX-License-Identifier: Apache-2.0
// What a smp::DistributedModel holds: the chain cut into segments, the engine of this rank, and
// what averages the gradients of replicas.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/model.h"

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/pipeline/engine/engine.h"
#include "smp_runtime/program/session_core.h"
#include "smp_runtime/replicas/gradient_reducer.h"
#include "smp_runtime/transport/loopback.h"

namespace smp {

/// Consecutive units of one partition: what one remote call runs.
struct Segment {
  int owner = 0;
  std::size_t first = 0;
  std::size_t end = 0;
};

class DistributedModel::Core {
 public:
  Core(std::shared_ptr<Session::Core> session, std::vector<Unit> units, const Options& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  at::Tensor forward(const at::Tensor& input);
  void backward(const at::Tensor& loss);
  StepOutput run(const Step::Body& body, const std::vector<at::Tensor>& batch);

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] int partition_of(std::string_view unit) const;

 private:
  void place(const Options& options);
  void compare_units();
  void start_engine();
  void align_replicas(const Options& options);
  at::Tensor run_segment(const Segment& segment, at::Tensor value) const;
  StepOutput drive(const Step::Body& body, const std::vector<at::Tensor>& batch, bool& went_back);
  StepOutput serve(bool& went_back);

  const std::shared_ptr<Session::Core> session_;
  const std::vector<Unit> units_;
  const int partition_;  ///< this rank's
  const int microbatches_;
  partition::Assignment assignment_;
  std::vector<Segment> segments_;
  std::vector<at::Tensor> parameters_;  ///< of this partition
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<transport::LoopbackNetwork> alone_;
  std::unique_ptr<pipeline::Engine> engine_;
  std::unique_ptr<replicas::GradientReducer> reducer_;  ///< null without replicas
};

}  // namespace smp
