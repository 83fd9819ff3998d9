// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/agreement.h"

#include <exception>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/text.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::checkpoint {

using nlohmann::json;

GatherTexts gather_by(session::Session& session) {
  return [&session](const std::string& what, const std::string& text) {
    return session.objects().all_gather(what, topology::Group::kWorld, text);
  };
}

std::vector<std::string> end_together(const GatherTexts& gather, const std::string& what,
                                      const std::string& error, const std::string& payload) {
  const std::string mine = json_line(json{error, payload});
  std::vector<std::string> payloads;
  for (const std::string& told : gather(what, mine)) {
    const json outcome = json::parse(told);
    if (const auto text = outcome[0].get<std::string>(); !text.empty()) {
      throw CheckpointError("{} failed on rank {}: {}", what, payloads.size(), text);
    }
    payloads.push_back(outcome[1].get<std::string>());
  }
  return payloads;
}

void together(session::Session& session, const std::string& what,
              const std::function<void()>& act) {
  run_collectively(
      act, [&](const std::string& error) { end_together(gather_by(session), what, error); });
}

void run_collectively(const std::function<void()>& act,
                      const std::function<void(const std::string&)>& tell) {
  std::exception_ptr own;
  try {
    act();
  } catch (...) {
    own = std::current_exception();
  }
  if (!own) return tell({});
  try {
    tell(transport::error_text(own));
  } catch (const HostError&) {  // what failed elsewhere, or because of this
  }
  std::rethrow_exception(own);
}

}  // namespace smp::checkpoint
