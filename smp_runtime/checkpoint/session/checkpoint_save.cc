// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/checkpoint_save.h"

#include <cstdint>
#include <map>
#include <random>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/checkpoint/session/agreement.h"
#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace smp::checkpoint {
namespace {

using nlohmann::json;
using topology::Group;

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:04x}", random(), random() & 0xffffU);
}

std::string as_text(const std::vector<FileDigest>& written) {
  json files = json::array();
  for (const FileDigest& file : written) files.push_back({file.name, file.bytes, file.crc32c});
  return files.dump();
}

}  // namespace

CheckpointSave::CheckpointSave(session::Session& session, Options options)
    : session_(session), options_(std::move(options)), gather_(gather_by(session)) {
  const std::string root = options_.by_host ? options_.root.filename() : options_.root;
  // The token is no part of what must be equal, and comes last.
  const std::string mine = json_line(json{root, options_.name}) + "\n";
  const auto asked = gather_(options_.what, mine + new_token());
  const auto wish_of = [&](std::size_t rank) {
    return json::parse(asked[rank].substr(0, asked[rank].find('\n')));
  };
  const std::size_t end = asked.front().find('\n') + 1;
  for (std::size_t rank = 1; rank < asked.size(); ++rank) {
    if (asked[rank].starts_with(std::string_view(asked.front()).substr(0, end))) continue;
    const json first = wish_of(0);
    const json other = wish_of(rank);
    throw ConfigError(
        "{}: rank 0 saves {} in {}, rank {} {} in {}; all ranks save the same checkpoint",
        options_.what, first[1].dump(), first[0].dump(), rank, other[1].dump(), other[0].dump());
  }
  token_ = asked.front().substr(end);
  folder_ = staging_path(options_.root, options_.name, token_);
  // Rank 0 first, so that it is the one where all hosts see the same folder.
  const cluster::LaunchRanks& ranks = session_.ranks();
  try {
    for (const bool turn : {ranks.rank == 0, ranks.local_rank.value_or(0) == 0}) {
      together([&] {
        if (!turn || publishes_) return;
        with_files([&] {
          publishes_ = open_staging(options_.root, options_.name, token_, options_.tidies);
        });
      });
    }
  } catch (...) {
    discard();  // whoever has made a folder, whose destructor is not called
    throw;
  }
}

CheckpointSave::~CheckpointSave() { discard(); }

void CheckpointSave::discard() {
  if (std::exchange(publishes_, false) && !is_published_) {
    discard_staging(options_.root, options_.name, token_);
  }
}

void CheckpointSave::together(const std::function<void()>& act) {
  run_collectively(act, [this](const std::string& error) { tell(error); });
}

void CheckpointSave::tell(const std::string& error) {
  try {
    all_written_ = end_together(gather_, options_.what, error, as_text(written_));
  } catch (...) {
    discard();
    throw;
  }
}

std::vector<FileDigest> CheckpointSave::written_by(int rank) const {
  std::vector<FileDigest> files;
  for (const json& file : json::parse(all_written_[static_cast<std::size_t>(rank)])) {
    files.push_back({.name = file[0].get<std::string>(),
                     .bytes = file[1].get<std::int64_t>(),
                     .crc32c = file[2].get<std::uint32_t>()});
  }
  return files;
}

/// Once, where ranks of several hosts wrote the same.
std::vector<FileDigest> CheckpointSave::files_by_name() const {
  std::map<std::string, FileDigest> files;
  for (int rank = 0; rank < session_.ranks().size; ++rank) {
    for (const FileDigest& file : written_by(rank)) {
      if (files.emplace(file.name, file).first->second == file) continue;
      throw CheckpointError(
          "{}: ranks of several hosts, which have folders of their own, wrote {} with other "
          "content; "
          "give all ranks the same",
          options_.what, file.name);
    }
  }
  std::vector<FileDigest> sorted;
  for (auto& [name, file] : files) sorted.push_back(std::move(file));
  return sorted;
}

void CheckpointSave::publish_folder(std::optional<int> kept) {
  publish("manifest.json", &checkpoint::publish_folder, kept);
}

void CheckpointSave::publish_files(const std::string& manifest) {
  publish(manifest, &checkpoint::publish_files, std::nullopt);
}

void CheckpointSave::publish(const std::string& manifest, Publish move, std::optional<int> kept) {
  together([&] {
    if (!publishes_) return;
    std::string tag = options_.name;
    if (tag.ends_with(kPartial)) tag.resize(tag.size() - std::string(kPartial).size());
    const topology::Mesh& mesh = session_.mesh();
    const Manifest content{.tag = tag,
                           .library = options_.library,
                           .degrees = {.pipeline = mesh.size(Group::kPp),
                                       .tensor = mesh.size(Group::kTp),
                                       .reduced_data = mesh.size(Group::kRdp)},
                           .files = files_by_name()};
    with_files([&] {
      write_file(folder_ / manifest, content.to_json());
      move(options_.root, options_.name, token_);
      is_published_ = true;
      write_file(options_.root / kNewest, options_.name);
      if (!kept) return;
      for (const std::string& old : prune_folders(options_.root, options_.name, *kept)) {
        SMP_LOG(info, "checkpoint {} was removed: {} are kept", (options_.root / old).string(),
                *kept);
      }
    });
  });
}

}  // namespace smp::checkpoint
