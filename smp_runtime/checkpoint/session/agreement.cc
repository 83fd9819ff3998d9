// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/agreement.h"

#include <cstddef>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "smp_runtime/core/text.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::checkpoint {

GatherTexts gather_by(session::Session& session) {
  return [&session](const std::string& what, const std::string& text) {
    return session.objects().all_gather(what, topology::Group::kWorld, text);
  };
}

std::vector<std::string> end_together(const GatherTexts& gather, const std::string& what,
                                      const std::string& error, const std::string& payload) {
  // Each rank reads those of all: nothing that would have to be parsed.
  const std::string mine = fmt::format("{} {}{}", error.size(), error, payload);
  std::vector<std::string> payloads;
  for (const std::string& told : gather(what, mine)) {
    const std::size_t space = told.find(' ');
    const auto size = parse_number<std::size_t>(std::string_view(told).substr(0, space));
    SMP_CHECK(size && *size < told.size() - space, "rank {} told \"{}\"", payloads.size(), told);
    if (*size > 0) {
      throw CheckpointError("{} failed on rank {}: {}", what, payloads.size(),
                            told.substr(space + 1, *size));
    }
    payloads.push_back(told.substr(space + 1));
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
