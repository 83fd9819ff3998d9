// SPDX-License-Identifier: Apache-2.0
// Recorder of a rank's activities: sums of each step for its record, spans for the timeline.
//
// Steps and what lies between them come one after the other; spans of several threads are added at
// any time. Nothing here waits for another rank but the timeline's lock of its file, once a step.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "smp_runtime/record/activity.h"
#include "smp_runtime/record/record_file.h"
#include "smp_runtime/record/traffic.h"

namespace smp::record {

/// Clocks of several hosts are compared, so it is the system's.
using Clock = std::chrono::system_clock;

struct RecorderOptions {
  int rank = 0;
  int first_rank = 0;         ///< of this host, by which the timeline tells hosts apart
  std::string host;           ///< its name
  std::string job;            ///< tells records of several jobs apart; the same on all ranks
  std::string timeline_file;  ///< of this host's ranks; empty: none
  std::string record_file;    ///< of this rank; empty: none
};

/// One end of a message between two ranks, for the timeline: both give it the same id.
struct Transfer {
  bool begins = true;
  std::string_view name;
  std::string id;
  std::int64_t microbatch = 0;
  std::int64_t bytes = 0;
};

class Recorder {
 public:
  explicit Recorder(RecorderOptions options);
  ~Recorder() { close(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// True if a record is written.
  [[nodiscard]] bool records() const { return record_.is_open(); }
  /// True if the spans of this step are kept, so that their names are worth making.
  [[nodiscard]] bool draws() const { return draws_; }

  /// The step before it ends here: what lay between them counts for that one.
  void begin_step();
  void end_step();
  /// The step ends, with what comes behind the engine: how many samples this rank's batch had, and
  /// whether the step trained.
  void describe_step(std::int64_t samples, bool trained);

  void add(Activity activity, std::string_view name, Clock::time_point begin, Clock::time_point end,
           std::int64_t microbatch = -1);
  /// Time between steps and outside of optimizers counts as time for data. Optimizers may nest.
  void begin_optimizer();
  void end_optimizer();
  void transfer(const Transfer& transfer);
  /// Tensors and bodies, no headers of the wire, to a rank of the job.
  void sent(int rank, std::int64_t bytes);
  /// The same to each of `ranks` but this one: a part of a collective.
  void sent(std::span<const int> ranks, std::int64_t bytes);

  /// A line of its own in the record: `{"KEY": JSON}`.
  void note(std::string_view key, std::string_view json);

  /// Writes what is left. Nothing is recorded afterwards.
  void close();

 private:
  /// Steps that follow each other; a long job's record has lines of several.
  struct Group {
    std::int64_t first = 0;
    std::int64_t steps = 0;
    std::int64_t trained = 0;
    std::int64_t samples = 0;
    std::int64_t messages = 0;
    std::int64_t bytes = 0;
    Clock::time_point begin;
    Clock::duration inside{0};   ///< of smp.step
    Clock::duration longest{0};  ///< from the begin of a step to that of the next
    Clock::duration nested{0};   ///< waits for other ranks within what ran
    std::array<Clock::duration, kActivities> spent{};
  };

  void close_step(Clock::time_point now);
  void write_group(Clock::time_point now);
  void write_events();
  void write_spans();
  void write_traffic();
  void draw(Activity activity, std::string_view name, Clock::time_point begin,
            Clock::time_point end, std::int64_t microbatch);

  const RecorderOptions options_;
  const int process_;  ///< a fork of it writes nothing
  std::mutex mutex_;
  TimelineFile timeline_;
  RecordFile record_;
  std::string events_;  ///< of the timeline, that are not in the file yet
  std::string spans_;   ///< of this step, for the record
  int span_count_ = 0;
  bool is_chosen_ = false;  ///< the record gets this step's spans
  bool draws_ = false;
  std::int64_t step_ = 0;
  bool in_step_ = false;
  Clock::time_point step_begun_;
  Clock::time_point busy_until_;  ///< end of the step or of the optimizer, what came last
  Clock::time_point optimizer_begun_;
  int optimizers_ = 0;  ///< that are under way
  Group group_;
  std::int64_t lines_ = 0;         ///< of groups
  std::int64_t steps_a_line_ = 1;  ///< doubles each so many lines: a record grows by the logarithm
  Traffic traffic_;
};

/// Around a wait for other ranks that counts as an activity.
class Waited {
 public:
  /// `recorder` may be null. `name` makes the span's name, where one is worth making.
  template <typename Name>
  Waited(Recorder* recorder, Activity activity, Name&& name)
      : recorder_(recorder), activity_(activity) {
    if (recorder_ == nullptr) return;
    if (recorder_->draws()) name_ = name();
    begin_ = Clock::now();
  }
  ~Waited() {
    if (recorder_ != nullptr) recorder_->add(activity_, name_, begin_, Clock::now());
  }
  Waited(const Waited&) = delete;
  Waited& operator=(const Waited&) = delete;

 private:
  Recorder* recorder_;
  Activity activity_;
  std::string name_;
  Clock::time_point begin_;
};

}  // namespace smp::record
