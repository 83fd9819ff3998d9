// SPDX-License-Identifier: Apache-2.0
// A model over several ranks: units that live on one partition each, replicas that are averaged,
// state that is sharded, and the step that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/session.h"
#include "smp/unit.h"

namespace smp {

/// One of the parts of a batch, along the first dim of each tensor.
struct Microbatch {
  int index = 0;                    ///< in the batch, from 0
  std::vector<at::Tensor> tensors;  ///< views of those of the batch, in its order

  /// A tensor by its place in the batch. Throws std::out_of_range for one that is not there.
  [[nodiscard]] const at::Tensor& operator[](std::size_t tensor) const {
    return tensors.at(tensor);
  }
};

/// Results of the step's body, one for each microbatch, detached; the same on all ranks of a
/// pipeline.
struct StepOutput {
  std::vector<at::Tensor> microbatches;  ///< by their index

  /// The mean over the microbatches, of the shape of one.
  [[nodiscard]] at::Tensor mean() const;
};

/// Units, and what the model computes with them: any calls of units, each as often as wanted.
struct Graph {
  std::vector<Unit> units;  ///< the same on all ranks
  /// Calls units by DistributedModel::call(). Empty: each unit takes what the one before returned.
  UnitFunction forward = {};
};

/// A model whose units are spread over the ranks of a job. Called by all ranks alike, from the
/// thread that made the session.
class DistributedModel {
 public:
  /// Placement of units, and averaging of gradients.
  struct Options {
    /// Units that are to live on a partition, by name; the others go to `default_partition`.
    /// Empty: the partitioner spreads the parameters evenly, within the memory of rank 0's GPU.
    std::map<std::string, int> partition = {};
    std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< of gradients averaged in one exchange
  };

  /// All ranks give the same units. With `ddp`, parameters and buffers become those of the first
  /// replica. With bf16, fp16, shard_optimizer_state or sharded data parallelism parameters are
  /// the library's from now on: they are what DistributedOptimizer's masters were rounded to, and
  /// while sharded have no values outside a unit. Their GPU becomes the current one of the calling
  /// thread, which is to be the one that makes steps. Collective. Throws ConfigError for no units,
  /// fewer than partitions, names that are empty, repeated or unknown, and parameters that two
  /// units on different partitions share.
  DistributedModel(Session& session, Graph graph, Options options);
  /// The same with default options.
  DistributedModel(Session& session, Graph graph)
      : DistributedModel(session, std::move(graph), Options()) {}
  /// Makes a model of a chain: each unit takes the results of the one before.
  DistributedModel(Session& session, std::vector<Unit> chain, Options options)
      : DistributedModel(session, Graph{.units = std::move(chain)}, std::move(options)) {}
  /// Makes a model of a chain with default options.
  DistributedModel(Session& session, std::vector<Unit> chain)
      : DistributedModel(session, Graph{.units = std::move(chain)}, Options()) {}
  /// A model that was moved from may only be assigned to or destroyed.
  DistributedModel(DistributedModel&&) noexcept;
  /// Likewise; the model that was here is destroyed.
  DistributedModel& operator=(DistributedModel&&) noexcept;
  /// Steps and optimizers made from the model keep what they need of it.
  ~DistributedModel();

  /// Inside the body of a step: runs the model, each unit where it lives. With bf16 or fp16, inputs
  /// of 32 and 64 bits become 16-bit, and results 32-bit. Throws UserCodeError outside a step.
  template <typename... Inputs>
  [[nodiscard]] at::Tensor forward(const at::Tensor& first, const Inputs&... others) {
    return forward_all({first, others...}).at(0);
  }
  /// The same with all that the model returns.
  [[nodiscard]] Tensors forward_all(const Tensors& inputs);
  /// Inside the body of a step, of the graph's forward or of a unit: runs a unit where it lives.
  /// Throws UserCodeError outside a step, for a name that no unit has, and for a tensor that is
  /// undefined.
  template <typename... Inputs>
  [[nodiscard]] at::Tensor call(std::string_view unit, const at::Tensor& first,
                                const Inputs&... others) {
    return call_all(unit, {first, others...}).at(0);
  }
  /// The same with all that the unit returns.
  [[nodiscard]] Tensors call_all(std::string_view unit, const Tensors& inputs);
  /// Inside the body of a step: backpropagates a microbatch's loss, divided by their number,
  /// through all partitions.
  void backward(const at::Tensor& loss);

  /// Parameters of the units that live on this rank, which its optimizer updates.
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const;
  /// Copies of the parameters and buffers of this rank's units on the CPU, by "unit.name"; trained
  /// ones in 32 bits where there are masters. A parameter that units share is there under each
  /// name. Collective over the ranks that share state.
  [[nodiscard]] std::vector<NamedTensor> local_state() const;
  /// The partition of a unit. Throws ConfigError for a name that none has.
  [[nodiscard]] int partition_of(std::string_view unit) const;

  /// @cond OF_THE_LIBRARY
  class Core;
  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }
  static Tensors call_of(Core& core, std::string_view unit, const Tensors& inputs);
  /// @endcond

 private:
  std::shared_ptr<Core> core_;
};

/// Trains or evaluates a model with one batch at each call. Made by step().
class Step {
 public:
  /// Runs the model on one microbatch and returns its loss, or whatever is to come back.
  using Body = std::function<at::Tensor(const Microbatch&)>;

  /// As step() does. Keeps the model alive.
  Step(const DistributedModel& model, Body body);

  /// Cuts each tensor along its first dim, runs the body for each microbatch on the first rank of
  /// the pipeline, while the others serve it, and averages gradients over the replicas. Called by
  /// all ranks, each replica with its batch. Blocks until the step is over here. Throws ConfigError
  /// for a batch that the microbatches do not divide, what the body threw, UserCodeError where
  /// another rank failed, and HostError where one was lost.
  StepOutput operator()(const std::vector<at::Tensor>& batch);
  /// The same with the tensors of the batch one by one.
  template <typename... Inputs>
  StepOutput operator()(const at::Tensor& first, const Inputs&... others) {
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
