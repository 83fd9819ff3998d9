// SPDX-License-Identifier: Apache-2.0
// Records of a job, as a shared disk or another host may hand them to the report: all that cannot
// be read is a problem in it, and nothing that they hold becomes markup of the page.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include <stdlib.h>

#include "entrypoint/report/report_json.h"
#include "entrypoint/report/report_page.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;
using namespace entrypoint::report;  // a program, not a header

/// A folder that this process writes anew for each input, in memory where there is /dev/shm.
class Folder {
 public:
  Folder() {
    std::string name = fs::exists("/dev/shm") ? "/dev/shm/records-XXXXXX" : "/tmp/records-XXXXXX";
    fuzz::require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// An input has the files one behind the other, with this line between.
constexpr std::string_view kNext = "--\n";
constexpr std::array kFiles = {"rank-0.jsonl", "rank-1.jsonl", "host-algo-1.jsonl",
                               "log-algo-1.jsonl", "smddp-0.jsonl"};

void write_files(const fs::path& folder, std::string_view input) {
  for (const char* name : kFiles) {
    const std::size_t end = std::min(input.find(kNext), input.size());
    std::ofstream(folder / name, std::ios::binary) << input.substr(0, end);
    input.remove_prefix(std::min(end + kNext.size(), input.size()));
  }
}

std::size_t tags_of(const std::string& page) {
  return static_cast<std::size_t>(std::ranges::count(page, '<'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  static const Folder folder;
  static const std::size_t kTags = tags_of(report_page(nullptr));
  write_files(folder.path(), fuzz::text_of(bytes, count));
  const std::array<fs::path, 2> places = {folder.path(), folder.path() / kFiles[0]};
  const JobRecord job = read_job_record(std::span(places).first(1));
  for (const RankRecord& rank : job.ranks) {
    fuzz::require(rank.lines.size() <= kMostLines && rank.later.steps <= rank.all.steps);
  }
  const JobNumbers numbers = numbers_of(job);
  const std::vector<Finding> findings = judge(job, numbers);
  fuzz::require(!findings.empty());
  fuzz::require(tags_of(report_page(report_json(job, numbers, findings))) == kTags);
  // The first file once more, as one of SMP_METRICS.
  static_cast<void>(numbers_of(read_job_record(places)));
  return 0;
}
