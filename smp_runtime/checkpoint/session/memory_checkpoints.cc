// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/memory_checkpoints.h"

#include <algorithm>
#include <functional>
#include <random>
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
constexpr const char* kManifest = "manifest.json";
constexpr const char* kOnDisk = "newest_on_disk";

/// `start` tells saves of one number by several starts of the job apart.
std::string name_of(std::int64_t number, std::string_view start) {
  return fmt::format("{}{}_{}{}", kPrefix, number, start, kPartial);
}

/// Of a folder's name; 0 for one of another kind.
std::int64_t number_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kPartial)) return 0;
  name.remove_prefix(kPrefix.size());
  return parse_number<std::int64_t>(std::string(name.substr(0, name.find('_')))).value_or(0);
}

/// This host's folder for all paths.
const std::string& memory_folder(const cluster::RuntimeOptions& options) {
  if (!options.memory_folder.empty()) return options.memory_folder;
  throw ConfigError(
      "SMP_CHECKPOINT_MEMORY is {}, and SMP_MEMORY_FOLDER is not set: train sets it on every host "
      "where it runs; elsewhere give each host a folder in its memory, of this job alone, such as "
      "/dev/shm/NAME",
      options.checkpoint_memory);
}

/// The newest checkpoint of a folder on the disk: its name, and a checksum of its manifest.
std::string newest_on_disk(const fs::path& path) {
  if (!fs::exists(path / kNewest)) return "none";
  std::string name = read_file(path / kNewest);
  name.erase(name.find_last_not_of(" \n") + 1);
  for (const fs::path& manifest : {path / name / kManifest, path / (name + ".manifest.json")}) {
    if (fs::exists(manifest)) return fmt::format("{} {:08x}", name, digest_of(manifest).crc32c);
  }
  return name;
}

/// Files of a checkpoint on one host.
struct Held {
  std::set<std::string> present;
  std::set<std::string> missing;  ///< of those that its manifest lists
  std::string on_disk;            ///< newest_on_disk() when it was saved
};

std::map<std::string, std::int64_t> files_in(const fs::path& folder) {
  std::map<std::string, std::int64_t> files;
  for (const fs::path& file : entries_of(folder)) {
    const std::string name = file.filename().string();
    if (!name.starts_with('.')) files[name] = static_cast<std::int64_t>(fs::file_size(file));
  }
  return files;
}

/// By name.
std::map<std::string, Held> held_in(const fs::path& root) {
  std::map<std::string, Held> found;
  for (const fs::path& folder : entries_of(root)) {
    const std::string name = folder.filename().string();
    const fs::path manifest = folder / kManifest;
    const fs::path on_disk = folder / kOnDisk;
    if (number_of(name) == 0 || !fs::exists(manifest) || !fs::exists(on_disk)) continue;
    Held held{.on_disk = read_file(on_disk)};
    for (const auto& [file, bytes] : files_in(folder)) held.present.insert(file);
    for (const FileDigest& file :
         Manifest::from_json(read_file(manifest), manifest.string()).files) {
      if (!held.present.contains(file.name)) held.missing.insert(file.name);
    }
    found.emplace(name, std::move(held));
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

/// What `tell` returns on each rank, by rank. What it throws on one of them is thrown on all.
std::vector<std::string> told_by_all(const GatherTexts& gather, const std::string& what,
                                     const std::function<std::string()>& tell) {
  std::string own;
  std::vector<std::string> all;
  run_collectively([&] { own = with_files(tell); },
                   [&](const std::string& error) { all = end_together(gather, what, error, own); });
  return all;
}

}  // namespace

MemoryCheckpoints::MemoryCheckpoints(session::Session& session, const fs::path& path)
    : session_(session), path_(fs::absolute(path)), copies_(session) {
  constexpr const char* kWhat = "checkpoints in memory";
  const fs::path folder = memory_folder(session_.options());
  const auto begun = told_by_all(gather_by(session_), kWhat, [&] {
    return json_line(json{session_.options().starts_again,
                          fmt::format("{:08x}", std::random_device()()),
                          fmt::format("{:016x}", fnv1a(fs::weakly_canonical(path_).string()))});
  });
  const json first = json::parse(begun.front());  // hosts may have the path under other names
  start_ = first[1].get<std::string>();
  root_ = folder / first[2].get<std::string>();
  const auto last = told_by_all(gather_by(session_), kWhat, [&] {
    if (!leads()) return std::string("0");
    fs::create_directories(root_);
    if (!first[0].get<bool>()) prune_folders(root_, "", 0);
    std::int64_t newest = 0;
    for (const auto& [name, held] : held_in(root_)) newest = std::max(newest, number_of(name));
    return fmt::to_string(newest);
  });
  for (const std::string& number : last) {
    number_ = std::max(number_, parse_number<std::int64_t>(number).value_or(0));
  }
}

bool MemoryCheckpoints::is_due(BackgroundSaves& saves) {
  if (++calls_ % session_.options().checkpoint_memory == 0) is_due_ = true;
  if (!is_due_) return false;
  const auto told =
      gather_by(session_)("a checkpoint in memory", saves.are_under_way() ? "waits" : "");
  if (std::ranges::any_of(told, [](const std::string& word) { return !word.empty(); })) {
    return false;
  }
  saves.wait();  // for nothing but what has failed
  is_due_ = false;
  return true;
}

std::string MemoryCheckpoints::next_name() { return name_of(++number_, start_); }

void MemoryCheckpoints::publish(CheckpointSave& save) {
  const topology::GroupLayout& layout = copies_.layout();
  CopyWish wish;
  for (const FileDigest& file : save.written_by(layout.rank)) wish.offered[file.name] = file.bytes;
  for (int other = 0; other < layout.size(); ++other) {
    if (other == layout.rank || neighbour(layout, other) != layout.rank) continue;
    for (const FileDigest& file : save.written_by(other)) {
      std::error_code unknown;  // then it is copied
      if (!fs::exists(save.folder() / file.name, unknown)) wish.wanted.push_back(file.name);
    }
  }
  copies_.run(save.gather(), save.options().what, save.folder(), wish);
  // Saves to the disk that began before this one are there: one thread writes all.
  const auto on_disk = told_by_all(save.gather(), save.options().what, [&] {
    return is_first() ? newest_on_disk(path_) : std::string();
  });
  save.together([&] {
    if (!save.publishes()) return;
    with_files([&] { write_file(save.folder() / kOnDisk, on_disk.front()); });
  });
  save.publish_folder();  // all hosts have it: the older one is of no use any more
  save.together([&] {
    if (!save.publishes()) return;
    with_files([&] { prune_folders(root_, save.options().name, 1); });
  });
}

fs::path MemoryCheckpoints::newest(const std::string& what) {
  const auto listed = told_by_all(gather_by(session_), what, [&] {
    json own{{"on_disk", is_first() ? newest_on_disk(path_) : ""}, {"held", json::array()}};
    if (!leads()) return json_line(own);
    for (const auto& [name, held] : held_in(root_)) {
      own["held"].push_back({{"name", name},
                             {"present", held.present},
                             {"missing", held.missing},
                             {"on_disk", held.on_disk}});
    }
    return json_line(own);
  });
  const auto on_disk = json::parse(listed.front())["on_disk"].get<std::string>();
  std::map<std::pair<std::int64_t, std::string>, Held> all;
  for (const std::string& list : listed) {
    const json told = json::parse(list);
    for (const json& one : told["held"]) {
      if (one["on_disk"] != on_disk) continue;
      const auto name = one["name"].get<std::string>();
      Held& held = all[{number_of(name), name}];
      held.present.merge(one["present"].get<std::set<std::string>>());
      held.missing.merge(one["missing"].get<std::set<std::string>>());
    }
  }
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    if (!std::ranges::includes(one->second.present, one->second.missing)) continue;
    fs::path folder = root_ / one->first.second;
    fetch(what, folder, {kManifest, kOnDisk});
    return folder;
  }
  return {};
}

void MemoryCheckpoints::fetch(const std::string& what, const fs::path& folder,
                              const std::vector<std::string>& files) {
  CopyWish wish;
  together(session_, what, [&] {
    with_files([&] {
      fs::create_directories(folder);
      const auto present = files_in(folder);
      if (leads()) wish.offered = present;
      for (const std::string& file : files) {
        if (!present.contains(file)) wish.wanted.push_back(file);
      }
    });
  });
  copies_.run(gather_by(session_), what, folder, wish);
}

}  // namespace smp::checkpoint
