// SPDX-License-Identifier: Apache-2.0
// Failure of a step: telling the others, unwinding, and the report on a rank that hangs.
#include <algorithm>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/hang_report.h"
#include "smp_runtime/pipeline/server.h"

namespace smp::pipeline {
namespace {

/// Time for which a rank without progress waits for the answers of the others.
constexpr auto kInquiryLimit = std::chrono::milliseconds(2000);

}  // namespace

void Server::guarded(const std::function<void()>& step) {
  try {
    step();
  } catch (const RemoteFailure&) {
    unwind();
    throw;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (const auto cause = aborted_ ? aborted_ : failure_told()) {
      unwind();
      throw RemoteFailure(*cause);
    }
    const std::string text =
        fmt::format("{} failed in step {}:\n{}", options_.name, step_, executor_.describe(error));
    for (int peer = 0; peer < transport_.size(); ++peer) {
      if (peer == transport_.rank()) continue;
      try {
        send(peer, {.kind = Kind::kAbort, .body = text});
      } catch (const HostError&) {
        // The peer is gone already.
      }
    }
    unwind();
    std::rethrow_exception(error);
  }
}

std::optional<std::string> Server::failure_told() {
  if (!send_failed_) return std::nullopt;
  try {
    while (auto message = transport_.receive(Clock::time_point::min())) {
      Envelope envelope = opened(std::move(*message));
      if (envelope.kind == Kind::kAbort && envelope.step == step_) return envelope.body;
      if (envelope.step > step_) early_.push_back(std::move(envelope));
    }
  } catch (const HostError&) {
    // All is read: there is no more to know than that a peer has left.
  }
  return std::nullopt;
}

void Server::unwind() {
  send_failed_ = false;
  scheduler_.cancel_all();
  awaited_.clear();
  replies_.clear();
  values_.clear();
  aborted_.reset();
  result_.reset();
  executor_.release(-1);
}

std::string Server::name_of(int64_t target) const {
  if (target < 0) return "step";
  return options_.target_name ? options_.target_name(target) : fmt::format("target {}", target);
}

std::string Server::waits() const {
  Waits waits{
      .held = scheduler_.held(), .held_by_order = scheduler_.held_by_order(), .driver = driver()};
  for (const auto& [id, key] : scheduler_.waiting()) {
    const auto found = awaited_.find(id);
    if (found == awaited_.end()) continue;
    waits.calls.push_back({key.microbatch, found->second.phase, found->second.route});
  }
  waits.tensor_of = values_.fetches_from();
  for (const Envelope& parked : values_.waiting()) {
    if (parked.route.empty()) continue;
    const int64_t target = parked.route[static_cast<size_t>(parked.hop)].target;
    waits.parked.push_back({parked.microbatch, target});
  }
  return describe(waits, [this](int64_t target) { return name_of(target); });
}

void Server::fail_as_hung() {
  Inquiry inquiry =
      ask_group(transport_, bodies_, step_, waits(), std::min(kInquiryLimit, options_.timeout));
  aborted_ = std::move(inquiry.aborted);
  throw HostError(hang_report(options_.name, transport_.rank(), step_,
                              std::chrono::duration_cast<std::chrono::seconds>(options_.timeout),
                              inquiry.waits));
}

}  // namespace smp::pipeline
