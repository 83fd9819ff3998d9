// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/conversation.h"

#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"

namespace entrypoint {
namespace {

constexpr std::string_view kPurpose = "conversation of hosts";

char letter(Side side) { return static_cast<char>(side); }
Side other(Side side) { return side == Side::kMaster ? Side::kWorker : Side::kMaster; }

/// A side's first line has a nonce.
bool has_spoken(std::string_view transcript, Side side) {
  return transcript.starts_with(letter(side)) ||
         transcript.find(std::string{'\n', letter(side)}) != std::string_view::npos;
}

smp::Mac code_of(const smp::MacKey& key, Side side, std::string_view transcript,
                 std::string_view line) {
  const char who = letter(side);
  return key.of({smp::field({&who, 1}), smp::field(transcript), smp::field(line)});
}

std::string sealed(const smp::MacKey& key, Side side, std::string_view transcript,
                   std::string_view line) {
  std::string text(line);
  if (!has_spoken(transcript, side)) text += " " + smp::fresh_nonce();
  return text + " " + smp::mac_text(code_of(key, side, transcript, text));
}

/// Takes the last word off.
std::string_view cut_word(std::string_view& text) {
  const std::size_t blank = text.rfind(' ');
  if (blank == std::string_view::npos) return {};
  const std::string_view word = text.substr(blank + 1);
  text = text.substr(0, blank);
  return word;
}

std::string_view without_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::optional<smp::MacKey> key_of(const Conversation::Secret& secret) {
  return secret ? std::optional<smp::MacKey>(std::in_place, *secret, kPurpose) : std::nullopt;
}

}  // namespace

Conversation::Conversation(tcp::Connection connection, Side own, const Secret& secret)
    : connection_(std::move(connection)), own_(own), key_(key_of(secret)) {}

Conversation::Conversation(tcp::Callers::Caller caller, Side own, const Secret& secret)
    : Conversation(std::move(caller.connection), own, secret) {
  if (!caller.told.empty()) remember(own, without_end(caller.told));
  heard_ = without_end(caller.heard);
}

std::string Conversation::greeting(std::string_view line, Side own, const Secret& secret) {
  const auto key = key_of(secret);
  return (key ? sealed(*key, own, {}, line) : std::string(line)) + "\n";
}

tcp::Callers::Rules Conversation::rules(std::size_t longest, std::chrono::milliseconds limit) {
  return {.limit = limit, .longest = longest + 1, .is_whole = [](std::string_view words) {
            return words.ends_with('\n');
          }};
}

void Conversation::say(std::string_view line, Deadline deadline) {
  connection_.write(seal(line) + "\n", deadline);
}

std::string Conversation::hear(std::size_t longest, Deadline deadline) {
  if (heard_) return open(*std::exchange(heard_, std::nullopt));
  return open(connection_.read_line(longest, deadline));
}

std::string Conversation::hear_first(std::string_view prefix, std::size_t longest,
                                     Deadline deadline) {
  const std::string line = connection_.read_line(longest, deadline);
  return line.starts_with(prefix) ? open(line) : line;
}

std::string Conversation::seal(std::string_view line) {
  if (!key_) return std::string(line);
  std::string text = sealed(*key_, own_, transcript_, line);
  remember(own_, text);
  return text;
}

std::string Conversation::open(std::string_view line) {
  if (!key_) return std::string(line);
  const Side side = other(own_);
  std::string_view text = line;
  const auto code = smp::parse_mac(cut_word(text));
  const char who = letter(side);
  if (!code ||
      !key_->fits(*code, {smp::field({&who, 1}), smp::field(transcript_), smp::field(text)})) {
    throw UnprovedLine(
        "{} does not prove that it is of this job: its line {} the job's secret; give all hosts "
        "the same SMP_JOB_SECRET; if they have it, a stranger was there",
        connection_.peer().text(),
        code ? "has a code under another secret than" : "has no code by");
  }
  if (!has_spoken(transcript_, side)) static_cast<void>(cut_word(text));  // the nonce
  remember(side, line);
  return std::string(text);
}

void Conversation::remember(Side side, std::string_view sealed) {
  transcript_ += letter(side);
  transcript_ += sealed;
  transcript_ += '\n';
}

}  // namespace entrypoint
