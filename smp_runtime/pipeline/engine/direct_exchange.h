// SPDX-License-Identifier: Apache-2.0
// Results of remote calls that go from one remote module straight to the next, at the caller.
//
// The caller gets a remote tensor: a tensor with the result's type and shape, and without its data.
// As an argument of another remote call it travels as a name, and its gradient goes straight back;
// when somebody looks at its data they are fetched. Which results are worth one is learnt: a result
// that was an argument of exactly one remote call, and nothing else as far as can be seen, gets one
// from the next microbatch on, and is sent to that call's rank as soon as it is made. A result that
// turns out to be looked at comes back as data for good. Right or wrong guesses change no number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "smp_runtime/pipeline/engine/call_body.h"
#include "smp_runtime/pipeline/server.h"

namespace smp::pipeline {

/// Makes a remote tensor. Runs on task threads.
using RemoteTensorMaker = std::function<at::Tensor(const transport::TensorMeta&)>;

struct DirectOptions {
  RemoteTensorMaker make_remote_tensor;  ///< empty: all results come back to the caller
  int64_t min_bytes = 1024;              ///< less than this travels as quickly as its name
};

/// Belongs to the holder of the run token.
class DirectExchange {
 public:
  DirectExchange(Server& server, DirectOptions options);
  ~DirectExchange();
  DirectExchange(const DirectExchange&) = delete;
  DirectExchange& operator=(const DirectExchange&) = delete;

  /// A place in the program that makes calls, with the ways of its results.
  struct Site;
  struct Remote;
  struct Plan {
    Site* site = nullptr;  ///< null: direct exchange is off
    DirectValues direct;
    Absent absent;                                ///< arguments that are remote tensors
    std::vector<std::shared_ptr<Remote>> remote;  ///< by argument; null where it is data
  };

  /// From a task, in front of a call with `arguments`: replaces remote tensors by their data where
  /// these are here, and has the others sent to where they are needed.
  [[nodiscard]] Plan plan(const Route& route, std::vector<at::Tensor>& arguments);
  /// Makes remote tensors of the results that stayed away.
  void fill(const Plan& plan, const Route& route, CallBody& reply);
  /// Behind the call: watches what becomes of its results.
  void watch(const Plan& plan, const std::vector<at::Tensor>& results);

  /// The same for the call's backward. `arguments` are the plan's.
  [[nodiscard]] DirectValues plan_backward(std::vector<at::Tensor>& gradients, Absent& absent,
                                           const std::vector<std::shared_ptr<Remote>>& arguments);
  void fill_backward(GradientBody& reply, const DirectValues& direct,
                     const std::vector<std::shared_ptr<Remote>>& arguments);

  /// The data of a remote tensor, without gradient; any other tensor as it is. From a task it may
  /// wait. Throws UserCodeError where the data cannot be had any more.
  [[nodiscard]] at::Tensor data_of(const at::Tensor& tensor);
  [[nodiscard]] bool stands_in(const at::Tensor& tensor);

  /// At the rank that serves a call: the values of those `tensors` that are to be kept, which
  /// `absent` marks. A remote tensor stays: another rank holds it.
  [[nodiscard]] decltype(CallData::values) keep_outputs(std::span<const KeptOutput> wishes,
                                                        const std::vector<at::Tensor>& tensors,
                                                        Absent& absent);

  /// At the end of a task: fetches what remote tensors of it are still in use, which may outlive
  /// their microbatch.
  void settle();
  /// The microbatch has ended: draws the conclusions.
  void release(int64_t microbatch);
  void clear();

 private:
  using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Watched {
    Weak tensor;
    int64_t microbatch;
    Site* site;
    size_t output;
    int uses = 0;
    int user = -1;
  };
  /// Caller, target, number of the call within a microbatch, and whether it is made with gradients.
  using SiteKey = std::tuple<int64_t, int64_t, int64_t, bool>;

  [[nodiscard]] std::shared_ptr<Remote> find(const at::Tensor& tensor);
  at::Tensor remote_tensor(Remote remote);
  void fetch(const std::shared_ptr<Remote>& remote);
  void forget_unused();

  Server& server_;
  const DirectOptions options_;
  std::map<SiteKey, std::unique_ptr<Site>> sites_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> calls_;  ///< so far in a microbatch
  std::map<const at::TensorImpl*, std::shared_ptr<Remote>> remotes_;
  std::map<const at::TensorImpl*, Watched> watched_;
};

/// From a remote tensor, its gradient's way; from `data`, the values.
[[nodiscard]] at::Tensor with_gradient_of(const at::Tensor& remote_tensor, const at::Tensor& data);

}  // namespace smp::pipeline
