// SPDX-License-Identifier: Apache-2.0
#include "smp/model.h"

#include <utility>

#include <ATen/ops/stack.h>

#include "smp_runtime/api/model_core.h"

namespace smp {

at::Tensor StepOutput::mean() const { return at::stack(microbatches).mean(0); }

DistributedModel::DistributedModel(Session& session, Graph graph, Options options)
    : core_(std::make_shared<Core>(session.core(), std::move(graph), options)) {}
DistributedModel::DistributedModel(DistributedModel&&) noexcept = default;
DistributedModel& DistributedModel::operator=(DistributedModel&&) noexcept = default;
DistributedModel::~DistributedModel() = default;

Tensors DistributedModel::forward_all(const Tensors& inputs) { return core_->forward(inputs); }
Tensors DistributedModel::call_all(std::string_view unit, const Tensors& inputs) {
  return core_->call(unit, inputs);
}
Tensors DistributedModel::call_of(Core& core, std::string_view unit, const Tensors& inputs) {
  return core.call(unit, inputs);
}
void DistributedModel::backward(const at::Tensor& loss) { core_->backward(loss); }
const std::vector<at::Tensor>& DistributedModel::parameters() const { return core_->parameters(); }
std::vector<NamedTensor> DistributedModel::local_state() const { return core_->local_state(); }
int DistributedModel::partition_of(std::string_view unit) const {
  return core_->partition_of(unit);
}

Step::Step(const DistributedModel& model, Body body)
    : model_(model.core()), body_(std::move(body)) {}

StepOutput Step::operator()(const std::vector<at::Tensor>& batch) {
  return model_->run(body_, batch);
}

}  // namespace smp
