// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/call_program.h"

#include <algorithm>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {
namespace {

class Walk {
 public:
  Walk(const ModuleTree& tree, const std::vector<int>& device_of)
      : tree_(tree), device_of_(device_of), times_(forward_times(tree)) {}

  CallProgram run() {
    program_.runs.push_back({.device = device_of_[0]});
    enter(0);
    while (!open_.empty()) {
      Frame& frame = open_.back();
      const auto& children = tree_.children(frame.node);
      if (frame.next_child < children.size()) {
        enter(children[frame.next_child++]);
      } else {
        leave();
      }
    }
    return std::move(program_);
  }

 private:
  // A module that has been entered and not left.
  struct Frame {
    int node = 0;
    int device = 0;
    int at = 0;  ///< device of the last result; another one only if the module passes results on
    int depth = 0;
    size_t next_child = 0;
    std::int64_t last_bytes = 0;  ///< of the last result
  };

  void enter(int node) {
    const Module& module = tree_.module(node);
    Frame frame{.node = node, .device = device_of_[node], .at = device_of_[node]};
    if (!open_.empty()) {
      const Frame& caller = open_.back();
      // A module that is never run leaves its children to its caller.
      if (!module.called) frame.device = frame.at = caller.device;
      frame.depth = caller.depth + (frame.device != caller.device ? 1 : 0);
      if (frame.device != caller.at) {
        go(frame.device, frame.depth, module.calls, module.input_bytes);
      }
    }
    program_.runs.back().work_ns += times_[node];
    program_.runs.back().recompute_ns += module.recompute_ns;
    open_.push_back(frame);
  }

  void leave() {
    const Frame frame = open_.back();
    open_.pop_back();
    if (frame.at != frame.device) go(frame.device, frame.depth, 1, frame.last_bytes);
    if (open_.empty()) return;
    Frame& caller = open_.back();
    const Module& module = tree_.module(frame.node);
    if (tree_.module(caller.node).passes_on) {
      caller.at = frame.device;
      caller.last_bytes = module.output_bytes;
    } else if (frame.device != caller.device) {
      go(caller.device, caller.depth, module.calls, module.output_bytes);
    }
  }

  void go(int device, int depth, int calls, std::int64_t bytes) {
    program_.runs.push_back(
        {.device = device, .depth = depth, .messages = std::max(1, calls), .bytes = bytes});
  }

  const ModuleTree& tree_;
  const std::vector<int>& device_of_;
  std::vector<std::int64_t> times_;
  std::vector<Frame> open_;
  CallProgram program_;
};

constexpr std::int64_t kMostRuns = 200'000;

/// The forward runs, then the same ones back to the first.
std::vector<schedule::Run> runs_of(const CallProgram& program, const StepModel& model) {
  std::vector<std::int64_t> messages{0};
  for (size_t number = 1; number < program.runs.size(); ++number) {
    messages.push_back(message_ns(program.runs[number - 1], program.runs[number], model));
  }
  std::vector<schedule::Run> runs;
  for (const Run& run : program.runs) {
    runs.push_back({.rank = run.device,
                    .depth = run.depth,
                    .work = run.work_ns,
                    .message = messages[runs.size()]});
  }
  // The backward begins where the forward ended.
  std::int64_t gradient = 0;
  for (size_t number = program.runs.size(); number-- > 0;) {
    const Run& run = program.runs[number];
    runs.push_back({.rank = run.device,
                    .phase = schedule::Phase::kBackward,
                    .depth = run.depth,
                    .work = run.recompute_ns + run.work_ns,
                    .deferred = run.work_ns,
                    .recomputes = run.recompute_ns > 0,
                    .message = gradient});
    gradient = messages[number];  // that the run had begun with
  }
  return runs;
}

}  // namespace

std::int64_t CallProgram::messages() const {
  std::int64_t sum = 0;
  for (const Run& run : runs) sum += run.messages;
  return sum;
}

std::int64_t CallProgram::bytes() const {
  std::int64_t sum = 0;
  for (const Run& run : runs) sum += 2 * run.bytes;
  return sum;
}

CallProgram make_call_program(const ModuleTree& tree, const std::vector<int>& device_of_node) {
  return Walk(tree, device_of_node).run();
}

std::int64_t message_ns(const Run& before, const Run& run, const StepModel& model) {
  const auto host = [&](int device) {
    return model.host_of_device.empty() ? 0 : model.host_of_device.at(static_cast<size_t>(device));
  };
  const bool is_near = host(before.device) == host(run.device);
  const LinkCost& link = is_near ? model.link : model.between_hosts;
  return run.messages * link.latency_ns + run.bytes * 1000 / link.bytes_per_us;
}

std::int64_t simulated_microbatches(const CallProgram& program,
                                    const schedule::ScheduleShape& shape) {
  const auto runs = static_cast<std::int64_t>(2 * program.runs.size());
  return std::min(shape.microbatches, std::max<std::int64_t>(2, kMostRuns / runs));
}

schedule::Simulation predict_step(const CallProgram& program, int devices, const StepModel& model) {
  SMP_CHECK(!program.runs.empty() && devices >= 1 && model.link.bytes_per_us >= 1,
            "{} runs on {} devices", program.runs.size(), devices);
  const std::vector<schedule::Run> runs = runs_of(program, model);
  schedule::ScheduleShape shape = model.shape;
  shape.microbatches = simulated_microbatches(program, shape);
  return schedule::simulate_schedule(runs, shape, devices);
}

}  // namespace smp::partition
