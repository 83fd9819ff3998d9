// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/memory_checkpoints.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/core/fnv1a.h"
#include "smp_runtime/core/text.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = "state_";
constexpr std::string_view kManifest = "manifest.json";

std::string name_of(std::int64_t number) {
  return fmt::format("{}{}{}", kPrefix, number, kPartial);
}

/// Of a folder's name; 0 for one of another kind.
std::int64_t number_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kPartial)) return 0;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::string_view(kPartial).size());
  return parse_number<std::int64_t>(std::string(name)).value_or(0);
}

/// Of a folder of checkpoints on the disk, by its path.
fs::path root_for(const cluster::RuntimeOptions& options, const fs::path& path) {
  if (!options.memory_folder.empty()) {
    return fs::path(options.memory_folder) /
           fmt::format("{:016x}", fnv1a(fs::absolute(path).string()));
  }
  throw ConfigError(
      "SMP_CHECKPOINT_MEMORY is {}, and SMP_MEMORY_FOLDER is not set: train sets it on every host "
      "where it runs; elsewhere give each host a folder in its memory, of this job alone, such as "
      "/dev/shm/NAME",
      options.checkpoint_memory);
}

/// Files of a checkpoint on one host.
struct Held {
  std::set<std::string> present;
  std::set<std::string> missing;  ///< of those that its manifest lists
};

std::map<std::string, std::int64_t> files_in(const fs::path& folder) {
  std::map<std::string, std::int64_t> files;
  for (const fs::path& file : entries_of(folder)) {
    const std::string name = file.filename().string();
    if (!name.starts_with('.')) files[name] = static_cast<std::int64_t>(fs::file_size(file));
  }
  return files;
}

/// What the folder holds, by number.
std::map<std::int64_t, Held> held_in(const fs::path& root) {
  std::map<std::int64_t, Held> found;
  for (const fs::path& folder : entries_of(root)) {
    const std::int64_t number = number_of(folder.filename().string());
    if (number == 0 || !fs::is_regular_file(folder / kManifest)) continue;
    Held held;
    for (const auto& [name, bytes] : files_in(folder)) held.present.insert(name);
    const fs::path manifest = folder / kManifest;
    for (const FileDigest& file :
         Manifest::from_json(read_file(manifest), manifest.string()).files) {
      if (!held.present.contains(file.name)) held.missing.insert(file.name);
    }
    found.emplace(number, std::move(held));
  }
  return found;
}

/// The rank of the next host that keeps a copy of the files of `rank`; itself where there is one
/// host.
int neighbour(const topology::GroupLayout& layout, int rank) {
  const int host = (layout.host(rank) + 1) % layout.hosts();
  const int there = static_cast<int>(layout.ranks_on[static_cast<std::size_t>(host)].size());
  return layout.rank_at(host, layout.local(rank) % there);
}

}  // namespace

MemoryCheckpoints::MemoryCheckpoints(session::Session& session, const fs::path& path)
    : session_(session), root_(root_for(session.options(), path)), copies_(session) {
  with_files([&] { fs::create_directories(root_); });
  if (!session_.options().starts_again) discard();
  const std::map<std::int64_t, Held> held =
      leads() ? held_in(root_) : std::map<std::int64_t, Held>{};
  const std::int64_t last = held.empty() ? 0 : held.rbegin()->first;
  for (const std::string& other :
       gather_by(session_)("checkpoints in memory", fmt::to_string(last))) {
    number_ = std::max(number_, parse_number<std::int64_t>(other).value_or(0));
  }
}

std::string MemoryCheckpoints::next_name() { return name_of(++number_); }

void MemoryCheckpoints::publish(CheckpointSave& save) {
  const topology::GroupLayout& layout = copies_.layout();
  CopyWish wish;
  for (const FileDigest& file : save.written_by(layout.rank)) wish.offered[file.name] = file.bytes;
  for (int other = 0; other < layout.size(); ++other) {
    if (other == layout.rank || neighbour(layout, other) != layout.rank) continue;
    for (const FileDigest& file : save.written_by(other)) {
      if (!fs::exists(save.folder() / file.name)) wish.wanted.push_back(file.name);
    }
  }
  copies_.run(save.gather(), save.options().what, save.folder(), wish);
  save.publish_folder();  // all hosts have it: the older one is of no use any more
  if (save.publishes()) prune_folders(root_, save.options().name, 1);
}

fs::path MemoryCheckpoints::newest(const std::string& what) {
  json mine = json::object();
  if (leads()) {
    for (const auto& [number, held] : held_in(root_)) {
      mine[fmt::to_string(number)] = json::array({held.present, held.missing});
    }
  }
  std::map<std::int64_t, Held> all;
  for (const std::string& told : gather_by(session_)(what, json_line(mine))) {
    const json held_there = json::parse(told);
    for (const auto& [number, files] : held_there.items()) {
      Held& held = all[parse_number<std::int64_t>(number).value_or(0)];
      held.present.merge(files[0].get<std::set<std::string>>());
      held.missing.merge(files[1].get<std::set<std::string>>());
    }
  }
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    if (!std::ranges::includes(one->second.present, one->second.missing)) continue;
    fs::path folder = root_ / name_of(one->first);
    fetch(what, folder, {std::string(kManifest)});
    return folder;
  }
  return {};
}

void MemoryCheckpoints::fetch(const std::string& what, const fs::path& folder,
                              const std::vector<std::string>& files) {
  CopyWish wish;
  with_files([&] {
    fs::create_directories(folder);
    const auto present = files_in(folder);
    if (leads()) wish.offered = present;
    for (const std::string& file : files) {
      if (!present.contains(file)) wish.wanted.push_back(file);
    }
  });
  copies_.run(gather_by(session_), what, folder, wish);
}

void MemoryCheckpoints::discard() {
  if (!leads()) return;
  std::error_code ignored;  // what is left is not whole
  for (const fs::path& folder : entries_of(root_)) fs::remove_all(folder, ignored);
}

}  // namespace smp::checkpoint
