// SPDX-License-Identifier: Apache-2.0
// A program of nested calls over ranks, with numbers for tensors: what the server is tested with.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/server.h"

namespace smp::pipeline::testing {

/// A "tensor": exact arithmetic, so that every order of additions gives the same result.
class Number : public transport::Payload {
 public:
  explicit Number(int64_t number) : value(number) {}
  [[nodiscard]] std::shared_ptr<Payload> copy() const override {
    return std::make_shared<Number>(value);
  }
  [[nodiscard]] int64_t size_bytes() const override { return sizeof(value); }
  int64_t value;
};

/// One of a few, long enough to travel once.
inline std::string body_of(int64_t value) {
  const auto kind = static_cast<uint64_t>(value) % 5;
  return std::string(40 + kind, static_cast<char>('a' + kind));
}
inline CallData call_data_of(int64_t value) {
  return {.body = body_of(value), .payload = std::make_shared<Number>(value)};
}
inline int64_t value_of(const CallData& data) {
  const int64_t value = dynamic_cast<const Number&>(*data.payload).value;
  SMP_CHECK(data.body == body_of(value), "{} came with the body {}", value, data.body);
  return value;
}

/// Module i multiplies by `weight`, then passes through its children in order, `repeats` times, and
/// adds its input (a residual link).
struct Module {
  int owner = 0;
  int64_t weight = 1;
  int repeats = 1;
  std::vector<size_t> children;
};

/// A random tree over `ranks`; module 0 is the root and on rank 0.
inline std::vector<Module> random_program(std::mt19937& random, int ranks, size_t modules) {
  const auto below = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  std::vector<Module> program(modules);
  for (size_t index = 0; index < modules; ++index) {
    program[index] = {.owner = index == 0 ? 0 : below(ranks),
                      .weight = 1 + below(3),
                      .repeats = 1 + below(2),
                      .children = {}};
    if (index > 0) program[random() % index].children.push_back(index);
  }
  return program;
}

/// Result of one process: forward value, and the derivative of it, in wrapping arithmetic.
struct Result {
  int64_t value;
  int64_t derivative;
  bool operator==(const Result&) const = default;
};

inline int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

/// All modules are linear, so value and derivative follow the same recursion.
inline int64_t run_alone(const std::vector<Module>& program, size_t index, int64_t input) {
  const Module& module = program[index];
  int64_t value = times(input, module.weight);
  for (int repeat = 0; repeat < module.repeats; ++repeat) {
    for (const size_t child : module.children) value = run_alone(program, child, value);
  }
  return plus(value, input);
}

/// Runs the program's modules of one rank; calls others through the server.
class ToyExecutor : public Executor {
 public:
  ToyExecutor(const std::vector<Module>& program, int rank) : program_(program), rank_(rank) {}

  void attach(Server& server) { server_ = &server; }

  CallData forward(const CallId& id, int64_t target, CallData request,
                   const Purpose& /*purpose*/) override {
    Tape& tape = tapes_[id];
    return call_data_of(run(static_cast<size_t>(target), value_of(request), tape));
  }

  CallData backward(const CallId& id, CallData gradients, const Purpose& /*purpose*/) override {
    const Tape tape = std::move(tapes_.extract(id).mapped());
    size_t end = tape.size();
    const int64_t result = unrun(tape, end, value_of(gradients));
    return call_data_of(result);
  }

  void release(int64_t microbatch) override {
    if (microbatch < 0) {
      tapes_.clear();
      return;
    }
    std::erase_if(tapes_, [&](const auto& entry) { return entry.first.microbatch == microbatch; });
  }

  std::string describe(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      return exception.what();
    }
  }

  /// Call in a run, in order: a local module's begin and end, and remote calls.
  struct Entry {
    enum class Kind { kBegin, kEnd, kRemote } kind;
    size_t module;
    uint64_t call;
    Route route;
  };
  using Tape = std::vector<Entry>;

  int64_t run(size_t index, int64_t input, Tape& tape) {
    const Module& module = program_[index];
    if (index == fail_in_module) throw UserCodeError("module {} fails on purpose", index);
    if (before_run) before_run(server_->microbatch(), index, Phase::kForward);
    ++runs;
    tape.push_back({Entry::Kind::kBegin, index, 0, {}});
    int64_t value = times(input, module.weight);
    for (int repeat = 0; repeat < module.repeats; ++repeat) {
      for (size_t next = 0; next < module.children.size();) {
        Route route = route_from(module, next);
        next += std::max<size_t>(route.size(), 1);
        if (route.empty()) {
          value = run(module.children[next - 1], value, tape);
        } else {
          auto reply = server_->call(route, call_data_of(value));
          value = value_of(reply.data);
          tape.push_back({Entry::Kind::kRemote, 0, reply.call, std::move(route)});
        }
      }
    }
    tape.push_back({Entry::Kind::kEnd, index, 0, {}});
    return plus(value, input);
  }

  /// Reads the tape backwards from `end`, over one module.
  int64_t unrun(const Tape& tape, size_t& end, int64_t gradient) {
    const size_t index = tape[--end].module;
    if (before_run) before_run(server_->microbatch(), index, Phase::kBackward);
    int64_t inner = gradient;
    while (tape[end - 1].kind != Entry::Kind::kBegin) {
      const Entry entry = tape[end - 1];
      if (entry.kind == Entry::Kind::kEnd) {
        inner = unrun(tape, end, inner);
      } else {
        --end;
        inner = value_of(server_->call_backward(entry.route, entry.call, call_data_of(inner)));
      }
    }
    --end;
    return plus(times(inner, program_[index].weight), gradient);
  }

  [[nodiscard]] bool empty() const { return tapes_.empty(); }

  size_t fail_in_module = SIZE_MAX;
  int64_t runs = 0;
  /// Called in front of each run of a module, forward or backward.
  std::function<void(int64_t microbatch, size_t module, Phase phase)> before_run;
  bool direct = true;  ///< whether remote children pass results on to each other

 private:
  /// The children from `next` on that one call may pass through.
  [[nodiscard]] Route route_from(const Module& module, size_t next) const {
    Route route;
    for (; next < module.children.size(); ++next) {
      const int owner = program_[module.children[next]].owner;
      if (owner == rank_ || (!route.empty() && owner == route.back().owner)) break;
      route.push_back({.owner = owner, .target = static_cast<int64_t>(module.children[next])});
      if (!direct) break;
    }
    return route;
  }

  const std::vector<Module>& program_;
  const int rank_;
  Server* server_ = nullptr;
  std::map<CallId, Tape> tapes_;
};

}  // namespace smp::pipeline::testing
