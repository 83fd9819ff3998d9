// SPDX-License-Identifier: Apache-2.0
// Whatever a job prints, and in whatever pieces it arrives: nothing of the stream is lost or
// changed, the record stays bounded, and the failure text keeps its shape within the bytes that the
// service shows.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "entrypoint/job/failure/cause.h"
#include "entrypoint/job/failure/failure_text.h"
#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/plan/secret_values.h"
#include "entrypoint/process/rank_lines.h"
#include "entrypoint/process/streams.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/utf8.h"
#include "tests/fuzz/target.h"

namespace {

using namespace entrypoint;  // a program, not a header
using fuzz::require;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const opt_ml::Utf8Character next = opt_ml::decode_utf8(text);
    if (!next.valid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

// Feeds `bytes` in pieces of `step`, as pipes do, through what the supervisor is made of.
void feed(OutputRecord& record, StreamKind kind, std::string_view bytes, std::size_t step,
          bool has_ranks) {
  const LineStream::Clock::time_point now{};
  std::string passed_on;
  RankLines ranks(TagEnd::kColon, [&](const RankTag* tag, std::string_view piece, bool) {
    record.add(kind, tag, piece);
  });
  LineStream lines([&](std::string_view piece, bool) {
    passed_on += piece;
    if (has_ranks) {
      ranks.append(piece, now);
    } else {
      record.add(kind, nullptr, piece);
    }
  });
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    lines.append(bytes.substr(at, step), now);
    if (at % 3 == 0) lines.flush_aged(now + LineStream::kPartialLineAge);
  }
  lines.finish();
  ranks.finish();
  require(passed_on == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count < 3) return 0;
  const std::size_t step = bytes[0] % 64U + 1U;
  const bool has_ranks = (bytes[1] & 1U) != 0;
  const entrypoint::ExitStatus status{.code = bytes[2] % 200, .signal = bytes[1] % 32};
  const std::string text(bytes + 3, bytes + count);
  const std::string_view out = std::string_view(text).substr(0, text.size() / 4);
  const std::string_view err = std::string_view(text).substr(text.size() / 4);

  OutputRecord record;
  if (has_ranks) record.expect_mpirun();
  feed(record, StreamKind::kOut, out, step, has_ranks);
  feed(record, StreamKind::kErr, err, step, has_ranks);
  require(record.lines(StreamKind::kErr).size() <= OutputRecord::kErrLines);
  require(record.telling_lines().size() <= OutputRecord::kTellingLines);
  for (const RankTraceback& found : tracebacks(record)) {
    require(!found.traceback->lines.empty());
    require(found.traceback->lines.size() <= TracebackCollector::kLongest);
  }

  const std::string failure = failure_text(
      {.status = status, .is_mpirun = has_ranks, .command = "mpirun -np 2 python3 train.py"},
      record, [](int rank) { return rank < 2 ? std::string("algo-1") : std::string(); });
  const std::string shown(opt_ml::utf8_prefix(failure, opt_ml::kFailureShownBytes));
  require(failure.size() <= kLongestFailureText);
  require(is_utf8(failure));
  require(shown.find("\nExitCode ") != std::string::npos);
  require(shown.find("\nErrorMessage \"") != std::string::npos);
  require(shown.find("\nCommand \"mpirun -np 2 python3 train.py\"\n") != std::string::npos);
  // A script that prints quotes may print this line itself.
  if (text.find('"') == std::string::npos) {
    require(failure.find("\nErrorMessage \"\"\n") == std::string::npos);
  }
  static_cast<void>(SecretValues{}.mask(failure));
  return 0;
}
