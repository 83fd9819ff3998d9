// SPDX-License-Identifier: Apache-2.0
// Calls that keep their inputs alone for the backward, and run once more then: activation
// checkpointing ("Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "smp/unit.h"

#include "smp_runtime/pipeline/engine/activation_store.h"

namespace smp::api {

/// Returns the result of `call`, which is to be called with gradients, on `inputs`. The backward
/// calls it once more, under the modes of now (autocast) and with the random numbers of now, of the
/// CPU and of `device`; changes to `buffers`, such as running statistics, are undone then. Inputs
/// wait in `store`, unless it is null; they must not be changed in place. Results that are floating
/// point have gradients.
Tensors recomputed(std::function<Tensors(const Tensors&)> call, const Tensors& inputs,
                   std::vector<at::Tensor> buffers, at::Device device,
                   pipeline::ActivationStore* store, std::int64_t microbatch);

}  // namespace smp::api
