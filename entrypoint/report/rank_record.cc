// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/rank_record.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "entrypoint/report/record_json.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/schedule/task_order.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::int64_t kWarmUpSteps = 2;
constexpr std::size_t kMostReadings = 2048;  // of memory, and of losses
constexpr std::size_t kMostEvents = 1000;
constexpr std::int64_t kMostOfAKind = 1 << 20;  // ranks of a job, microbatches, steps of a line

/// Every second one goes once there are too many.
template <typename Reading>
void thin(std::vector<Reading>& readings) {
  if (readings.size() < kMostReadings) return;
  for (std::size_t i = 0; i < readings.size() / 2; ++i)
    readings[i] = std::move(readings[2 * i + 1]);
  readings.resize(readings.size() / 2);
}

class Reader {
 public:
  explicit Reader(RankRecord& record) : record_(record) {}

  void read(std::string_view line) {
    if (line.empty()) return;
    if (line.front() == '[') return read_steps(line);
    const json object = record_line(line);
    if (!object.is_object()) throw smp::ConfigError("it is no JSON object");
    if (object.contains("format")) return read_header(object);
    if (object.contains("spans")) return read_spans(object["spans"]);
    if (object.contains("traffic")) return read_traffic(object["traffic"]);
    if (object.contains("loss")) return read_loss(object["loss"]);
    if (object.contains("memory")) return read_memory(object["memory"]);
    if (object.contains("event")) return read_event(object["event"]);
    if (object.contains("job")) read_facts(object["job"]);
    if (object.contains("partition")) record_.partition = object["partition"];
  }

  void finish() {
    if (pending_.steps > 0) push(pending_);
    if (record_.later.steps == 0) record_.later = record_.all;
  }

 private:
  void read_header(const json& header) {
    if (header["format"] != kFormat) {
      throw smp::ConfigError("its format is {}; this program reads format {}",
                             header["format"].dump(), kFormat);
    }
    record_.rank = record_number<int>(header.at("rank"));
    if (header.contains("first_rank"))
      record_.first_rank = record_number<int>(header["first_rank"]);
    record_.host = header.at("host");
    record_.job = header.value("job", "");
    columns_.clear();
    if (!header.contains("columns")) return;  // of a group of smddp
    for (const json& name : header["columns"]) columns_.push_back(place_of(name));
  }

  /// What the report looks at is what it is to be; the page shows all of them.
  void read_facts(const json& facts) {
    const auto count = [](const json& value, std::int64_t least) {
      const std::int64_t number = record_number(value);
      if (number < least || number > kMostOfAKind) {
        throw smp::ConfigError("{}; expected {} to {}", number, least, kMostOfAKind);
      }
    };
    if (!facts.is_object()) throw smp::ConfigError("the job's facts are no JSON object");
    if (facts.contains("ranks")) count(facts["ranks"], 0);
    if (facts.contains("groups")) {
      for (const auto& [kind, ranks] : facts["groups"].items()) {
        for (const json& rank : ranks) static_cast<void>(record_number<int>(rank));
      }
    }
    if (facts.contains("settings")) {
      const json& settings = facts["settings"];
      for (const char* name : {"microbatches", "active_microbatches"}) {
        if (settings.contains(name) && !settings[name].is_null()) count(settings[name], 1);
      }
      if (settings.contains("pipeline") && !settings["pipeline"].is_null()) {
        static_cast<void>(smp::schedule::parse_schedule(settings["pipeline"].get<std::string>()));
      }
    }
    record_.facts = facts;
  }

  /// The member for a column; null: unknown here, as a column of a later program.
  static std::int64_t StepLine::*plain(std::string_view name) {
    if (name == "step") return &StepLine::step;
    if (name == "steps") return &StepLine::steps;
    if (name == "trained") return &StepLine::trained;
    if (name == "samples") return &StepLine::samples;
    if (name == "begin_us") return &StepLine::begin;
    if (name == "total_us") return &StepLine::total;
    if (name == "longest_us") return &StepLine::longest;
    if (name == "step_us") return &StepLine::inside;
    if (name == "nested_us") return &StepLine::nested;
    if (name == "messages") return &StepLine::messages;
    if (name == "bytes") return &StepLine::bytes;
    return nullptr;
  }

  struct Column {
    std::int64_t StepLine::*plain = nullptr;
    int activity = -1;
  };

  static Column place_of(const std::string& name) {
    for (std::size_t i = 0; i < smp::record::kActivities; ++i) {
      const auto activity = static_cast<smp::record::Activity>(i);
      if (name == fmt::format("{}_us", smp::record::name_of(activity))) {
        return {.activity = static_cast<int>(i)};
      }
    }
    return {.plain = plain(name)};
  }

  /// By hand: there may be millions.
  void read_steps(std::string_view text) {
    StepLine line;
    const char* at = text.data() + 1;
    const char* const end = text.data() + text.size();
    for (const Column& column : columns_) {
      std::int64_t number = 0;
      while (at != end && *at == ' ') ++at;
      const auto [next, problem] = std::from_chars(at, end, number);
      if (problem != std::errc() || next == end) throw smp::ConfigError("it ends in the middle");
      if (!is_record_number(number)) throw smp::ConfigError("{} is too large", number);
      if (column.plain != nullptr) line.*column.plain = number;
      if (column.activity >= 0) line.spent[static_cast<std::size_t>(column.activity)] = number;
      at = next + 1;
    }
    if (line.steps < 1 || line.steps > kMostOfAKind || line.total < 0)
      throw smp::ConfigError("it is of no step");
    record_.all.add(line);
    if (line.step > kWarmUpSteps) {
      record_.later.add(line);
      record_.periods.add(line.total / line.steps, line.steps);
    }
    pending_.add(line);
    if (pending_.steps >= steps_a_line_) push(pending_);
  }

  void push(StepLine& line) {
    auto& lines = record_.lines;
    lines.push_back(line);
    line = {};
    if (lines.size() < kMostLines) return;
    for (std::size_t i = 0; i < lines.size() / 2; ++i) {
      StepLine both = lines[2 * i];
      both.add(lines[2 * i + 1]);
      lines[i] = both;
    }
    lines.resize(lines.size() / 2);
    steps_a_line_ *= 2;
  }

  void read_spans(const json& object) {
    StepSpans step{.step = record_number(object.at("step")),
                   .begin = record_number(object.at("begin_us"))};
    for (const json& row : object.at("rows")) {
      step.spans.push_back({.activity = record_number<int>(row.at(0)),
                            .begin = record_number(row.at(1)),
                            .duration = record_number(row.at(2)),
                            .microbatch = record_number(row.at(3)),
                            .name = row.at(4)});
    }
    record_.spans.push_back(std::move(step));
  }

  void read_traffic(const json& rows) {
    record_.sent.clear();
    for (const json& row : rows) {
      record_.sent[record_number<int>(row.at(0))] = {record_number(row.at(1)),
                                                     record_number(row.at(2))};
    }
  }

  void read_loss(const json& row) {
    // Python's NaN is no JSON; a number that is none comes as null.
    const double value =
        row.at(1).is_number() ? row.at(1).get<double>() : std::numeric_limits<double>::quiet_NaN();
    record_.losses.push_back(
        {.step = record_number(row.at(0)), .value = value, .training = row.at(2)});
    thin(record_.losses);
  }

  void read_memory(const json& object) {
    Memory reading{.time = object.at("time"), .peak = record_number(object.at("peak"))};
    for (const auto& [kind, bytes] : object.at("kinds").items()) {
      reading.kinds[kind] = record_number(bytes);
    }
    record_.memory.push_back(std::move(reading));
    if (object.contains("formula")) record_.state_by_formula = record_number(object["formula"]);
    thin(record_.memory);
  }

  void read_event(const json& object) {
    if (record_.events.size() >= kMostEvents) return;
    record_.events.push_back(
        {.time = object.at("time"), .kind = object.at("kind"), .text = object.value("text", "")});
  }

  RankRecord& record_;
  std::vector<Column> columns_;
  StepLine pending_;
  std::int64_t steps_a_line_ = 1;
};

}  // namespace

RankRecord read_rank_record(const std::filesystem::path& file) {
  RankRecord record{.file = file};
  std::ifstream stream(file);
  Reader reader(record);
  std::string line;
  std::int64_t number = 0;
  std::int64_t bad = 0;
  while (std::getline(stream, line)) {
    ++number;
    // A line without its end is what a rank was writing when it was killed.
    if (stream.eof()) break;
    try {
      reader.read(line);
    } catch (const std::exception& error) {
      if (++bad > 1) continue;
      record.problems.push_back(
          fmt::format("{}: line {} cannot be read: {}", file.string(), number, error.what()));
    }
  }
  reader.finish();
  if (number == 0) record.problems.push_back(fmt::format("{} is empty", file.string()));
  if (bad > 1) {
    record.problems.back() += fmt::format("; {} more lines like it", bad - 1);
  }
  return record;
}

}  // namespace entrypoint::report
