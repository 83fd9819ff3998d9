// SPDX-License-Identifier: Apache-2.0
// State behind a smp::DistributedModel: the units and their places, this rank's engine, and the
// averaging of replicas' gradients or the sharded state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/model.h"

#include "smp_runtime/api/model_state.h"
#include "smp_runtime/api/session_core.h"
#include "smp_runtime/api/unit_placement.h"
#include "smp_runtime/ddp/gradient_reducer.h"
#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/pipeline/engine/activation_store.h"
#include "smp_runtime/pipeline/engine/engine.h"
#include "smp_runtime/sharding/mixed_precision_steps.h"

namespace smp {

/// Consecutive units of one partition: what one remote call runs.
struct Segment {
  int owner = 0;
  std::size_t first = 0;
  std::size_t end = 0;
};

class DistributedModel::Core {
 public:
  Core(std::shared_ptr<Session::Core> session, Graph graph, const Options& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Tensors forward(const Tensors& inputs);
  Tensors call(std::string_view unit, const Tensors& inputs);
  void backward(const at::Tensor& loss);
  StepOutput run(const Step::Body& body, const Tensors& batch);

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] std::vector<NamedTensor> local_state() const;
  [[nodiscard]] int partition_of(std::string_view unit) const;

  // --- For its optimizer and checkpoints ---

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  [[nodiscard]] bool is_here(std::size_t unit) const;
  [[nodiscard]] const partition::Assignment& assignment() const { return assignment_; }

  [[nodiscard]] Session::Core& session() const { return *session_; }
  /// Device of the model's parameters, those of other partitions too.
  [[nodiscard]] at::Device device() const;
  /// Null where the settings leave the state as it is.
  [[nodiscard]] api::ModelState* state() const { return state_.get(); }
  /// The steps of the optimizer of the masters: the loss is multiplied by their scale from now on,
  /// and they hear of gradients. Throws ConfigError if there are any.
  void attach_optimizer(sharding::MixedPrecisionSteps& steps);
  void detach_optimizer();
  /// Sets the function that counts the bytes of the optimizer's state, for the optimizer that was
  /// made last. `owner` identifies that optimizer.
  void set_optimizer_bytes(const void* owner, std::function<std::int64_t()> bytes) {
    optimizer_ = owner;
    optimizer_bytes_ = std::move(bytes);
  }
  void forget_optimizer_bytes(const void* owner) {
    if (optimizer_ == owner) set_optimizer_bytes(nullptr, nullptr);
  }

 private:
  void place(const Options& options);
  void compare_units();
  void align_replicas();
  void keep_state(const Options& options);
  void start_engine();
  /// Target of a remote call: a segment of the chain, or, from the number of segments on, a single
  /// unit.
  [[nodiscard]] Segment segment_of(int64_t target) const;
  [[nodiscard]] std::size_t unit_named(std::string_view name) const;

  void require_step(std::string_view what) const;
  Tensors run_unit(std::size_t unit, const Tensors& inputs);
  Tensors run_segment(const Segment& segment, Tensors values);
  Tensors run_chain(Tensors values);
  StepOutput drive(const Step::Body& body, const Tensors& batch, bool& went_back);
  StepOutput serve(bool& went_back);
  void begin_step();
  void finish_backward();

  [[nodiscard]] metrics::MemoryLedger memory() const;
  [[nodiscard]] std::int64_t state_by_formula() const;
  [[nodiscard]] std::int64_t memory_in_use() const;

  const std::shared_ptr<Session::Core> session_;
  const std::vector<Unit> units_;
  const UnitFunction forward_;  ///< empty for a chain
  const int partition_;         ///< this rank's
  const int microbatches_;
  const std::string key_;  ///< of what rank 0 tells of this model
  const at::ScalarType computing_type_;
  partition::Assignment assignment_;
  std::vector<Segment> segments_;
  std::vector<at::Tensor> parameters_;  ///< of this partition
  std::vector<at::Tensor> buffers_;
  std::unique_ptr<pipeline::ActivationStore> activations_;  ///< null without offload_activations
  std::unique_ptr<api::ModelState> state_;
  std::unique_ptr<ddp::GradientReducer> reducer_;  ///< null without replicas
  std::unique_ptr<pipeline::Engine> engine_;
  sharding::MixedPrecisionSteps* steps_ = nullptr;  ///< null without an optimizer of masters
  bool lacked_optimizer_ = false;                   ///< at the end of an earlier step
  const void* optimizer_ = nullptr;
  std::function<std::int64_t()> optimizer_bytes_;  ///< empty without one
};

}  // namespace smp
