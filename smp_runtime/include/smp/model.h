// SPDX-License-Identifier: Apache-2.0
// A model over several ranks: units that live on one partition each, replicas that are averaged,
// and the step that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/session.h"
#include <ATen/core/Tensor.h>

namespace smp {

/// A part of a model that is called as a whole and lives on one partition. Every rank makes all
/// units and runs those of its own.
struct Unit {
  std::string name;
  std::function<at::Tensor(const at::Tensor& input)> forward;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
};

/// One of the parts of a batch, along the first dim of each tensor.
struct Microbatch {
  int index = 0;
  std::vector<at::Tensor> tensors;

  [[nodiscard]] const at::Tensor& operator[](std::size_t tensor) const {
    return tensors.at(tensor);
  }
};

/// What the body of a step returned for each microbatch, detached; the same on all ranks of a
/// pipeline.
struct StepOutput {
  std::vector<at::Tensor> microbatches;

  [[nodiscard]] at::Tensor mean() const;
};

/// Called by all ranks alike, from the thread that made the session.
class DistributedModel {
 public:
  struct Options {
    /// Units that are to live on a partition, by name; the others go where the partitioner puts
    /// them: without any, it cuts the chain so that the parameters are spread evenly.
    std::map<std::string, int> partition = {};
    std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< gradients that are averaged together
  };

  /// A chain: each unit takes what the one before it returned. All ranks give the same units.
  /// With `ddp`, parameters and buffers become those of the first replica. Collective. Throws
  /// ConfigError for no units, fewer than partitions, names that are empty, repeated or unknown,
  /// and parameters that two units on different partitions share.
  DistributedModel(Session& session, std::vector<Unit> chain, Options options);
  DistributedModel(Session& session, std::vector<Unit> chain)
      : DistributedModel(session, std::move(chain), Options()) {}
  DistributedModel(DistributedModel&&) noexcept;
  DistributedModel& operator=(DistributedModel&&) noexcept;
  ~DistributedModel();

  /// Inside the body of a step: runs the chain, each unit where it lives. Throws UserCodeError
  /// outside a step.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);
  /// Inside the body of a step: backpropagates a microbatch's loss, divided by their number,
  /// through all partitions.
  void backward(const at::Tensor& loss);

  /// Of the units that live on this rank: what its optimizer updates.
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const;
  /// The partition of a unit. Throws ConfigError for a name that none has.
  [[nodiscard]] int partition_of(std::string_view unit) const;

  class Core;
  /// Of the library's own.
  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }

 private:
  std::shared_ptr<Core> core_;
};

/// Trains or evaluates a model with one batch at each call. Made by step().
class Step {
 public:
  using Body = std::function<at::Tensor(const Microbatch&)>;

  Step(const DistributedModel& model, Body body);

  /// Cuts each tensor along its first dim, runs the body for each microbatch on the first rank of
  /// the pipeline, while the others serve it, and averages gradients over the replicas. Called by
  /// all ranks, each replica with its batch. Blocks until the step is over here. Throws ConfigError
  /// for a batch that the microbatches do not divide, what the body threw, UserCodeError where
  /// another rank failed, and HostError where one was lost.
  StepOutput operator()(const std::vector<at::Tensor>& batch);
  template <typename... Tensors>
  StepOutput operator()(const at::Tensor& first, const Tensors&... others) {
    return (*this)(std::vector<at::Tensor>{first, others...});
  }

 private:
  std::shared_ptr<DistributedModel::Core> model_;
  Body body_;
};

/// The step whose `body` returns the loss, or whatever is to come back, of one microbatch.
[[nodiscard]] inline Step step(const DistributedModel& model, Step::Body body) {
  return {model, std::move(body)};
}

}  // namespace smp
