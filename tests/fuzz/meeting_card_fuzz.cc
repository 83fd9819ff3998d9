// SPDX-License-Identifier: Apache-2.0
// Cards of a meeting, as the job's store may hold them: what is one is the same once written.
#include <optional>

#include "smp_runtime/transport/meeting_card.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using smp::transport::MeetingCard;
  const auto card = MeetingCard::parse(fuzz::text_of(bytes, count));
  if (!card) return 0;
  const auto again = MeetingCard::parse(card->text());
  fuzz::require(again && again->text() == card->text() && again->same_process(*card));
  static_cast<void>(card->whose());
  return 0;
}
