// SPDX-License-Identifier: Apache-2.0
// Saves what a C++ program trains, of the same model, batches and optimizer as
// tests/mpi/jobs/golden_jobs.py: golden FOLDER SETTINGS AdamW|SGD
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "network.h"
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <smp/smp.h>
#include <torch/torch.h>

using golden::integers;

constexpr int64_t kSteps = 3;

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string settings = argv[2];
  smp::Session session = smp::Session::from_settings(settings);
  const std::vector<smp::Unit> units = smp::units_of(golden::network());
  smp::DistributedModel::Options placed;
  if (session.pp_size() > 1) placed.partition = {{"3", 1}, {"4", 1}, {"5", 1}, {"6", 1}};
  smp::DistributedModel model(session, units, placed);
  smp::DistributedOptimizer optimizer(model, golden::optimizer_of(units, model, argv[3], 0.125),
                                      {.scale = 64, .window = 4});
  auto train =
      smp::step(model, [&](const smp::Microbatch& in) { return golden::trained_loss(model, in); });
  const bool scaled = settings.find("fp16") != std::string::npos;
  for (int64_t step = 0; step < kSteps; ++step) {
    const torch::Tensor ids = integers(0, 5, {4, 2}, 100 * step + session.dp_rank());
    const float factor = scaled && step == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
    optimizer.zero_grad();
    train(ids, torch::full({4}, factor));
    optimizer.step();
  }
  c10::impl::GenericList names(c10::AnyType::get());
  for (const char* name : {"a", "b"}) names.push_back(std::string(name));
  c10::impl::GenericDict content(c10::StringType::get(), c10::AnyType::get());
  content.insert(std::string("steps"), kSteps);
  content.insert(std::string("names"), names);
  content.insert(std::string("rate"), 0.5);
  content.insert(std::string("order"), torch::tensor({2, 0, 1}, torch::kInt64));
  smp::save_checkpoint(session, argv[1], model,
                       {.tag = "golden", .optimizer = &optimizer, .user_content = content});
}
