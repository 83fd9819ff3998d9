// SPDX-License-Identifier: Apache-2.0
// Ends of ranks as reported by the launcher that started them: mpirun in its notices, torchrun in
// the table behind its ChildFailedError. The service sees the launcher's own exit status alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "entrypoint/process/spawn.h"

namespace entrypoint {

struct ReportedEnd {
  int rank = 0;
  std::optional<ExitStatus> status;  ///< none: not said, or not yet
};

class EndReports {
 public:
  /// Lines of dashes are mpirun's, and no script's.
  void expect_mpirun() { is_mpiruns_ = true; }

  /// Forgets what was reported.
  void begin_again() {
    const bool is_mpiruns = is_mpiruns_;
    *this = {};
    is_mpiruns_ = is_mpiruns;
  }

  /// One whole line without a rank's tag. Returns whether it is a launcher's.
  bool add(std::string_view line);

  /// The first rank to end, as far as the launcher knows; later ones were taken down with it.
  [[nodiscard]] const std::optional<ReportedEnd>& first() const { return first_; }

  /// Ranks write to torchrun's own streams, so that no line tells whose it is.
  [[nodiscard]] bool is_torchruns() const { return is_torchruns_; }

  /// The first box that mpirun drew between lines of dashes, whole; empty: none. It has the reason
  /// where no rank came to run.
  [[nodiscard]] const std::string& first_box() const { return first_box_; }

  /// The host whose daemon mpirun lost, as it names it; empty while it lost none.
  [[nodiscard]] const std::string& lost_host() const { return lost_host_; }

 private:
  enum class Table { kNone, kOthers, kRootCause, kDone };

  bool add_torchruns(std::string_view line);
  bool add_mpiruns(std::string_view line);
  void name(int rank);
  void add_to_box(std::string_view line);
  void note_lost_host(std::string_view line);

  std::optional<ReportedEnd> first_;
  bool is_torchruns_ = false;
  bool is_mpiruns_ = false;
  bool signal_follows_ = false;
  Table table_ = Table::kNone;
  bool in_box_ = false;
  bool box_done_ = false;
  std::string first_box_;
  bool daemon_lost_ = false;
  std::string lost_host_;
};

}  // namespace entrypoint
