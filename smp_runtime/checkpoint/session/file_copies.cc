// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/file_copies.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ops/from_file.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/session/group_failure.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kPiece = std::int64_t{256} << 20;

std::vector<int> all_ranks(const session::Session& session) {
  std::vector<int> ranks(static_cast<std::size_t>(session.ranks().size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

CopyWish wish_of(const std::string& text) {
  const json told = json::parse(text);
  return {.offered = told[0].get<std::map<std::string, std::int64_t>>(),
          .wanted = told[1].get<std::vector<std::string>>()};
}

/// The bytes of a file in memory; changes of them are the file's if it is `written`.
at::Tensor mapped(const fs::path& path, std::int64_t bytes, bool written) {
  return at::from_file(path.string(), /*shared=*/written, bytes, at::kByte);
}

}  // namespace

IncomingFile::IncomingFile(fs::path path, std::int64_t bytes)
    : path_(std::move(path)), draft_(open_draft(path_, "writing", kForOwner)) {
  int error = draft_.file.is_open() ? 0 : errno;
  // Beforehand, for a page without room would end the process when it is written. A signal undoes
  // what one call has done.
  for (std::int64_t begin = 0; error == 0 && begin < bytes;) {
    const std::int64_t piece = std::min(kPiece, bytes - begin);
    error = posix_fallocate(draft_.file.get(), begin, piece);
    if (error == EINTR) {
      error = 0;
    } else {
      begin += piece;
    }
  }
  if (error == 0) return;
  std::error_code ignored;
  if (draft_.file.is_open()) fs::remove(draft_.path, ignored);
  throw HostError("{} of {} bytes cannot be made: {}", path_.string(), bytes, std::strerror(error));
}

IncomingFile::~IncomingFile() {
  std::error_code ignored;
  if (!draft_.path.empty()) fs::remove(draft_.path, ignored);
}

IncomingFile::IncomingFile(IncomingFile&& other) noexcept
    : path_(std::move(other.path_)), draft_(std::exchange(other.draft_, {})) {}

void IncomingFile::keep() {
  fs::rename(draft_.path, path_);
  draft_.path.clear();
}

FileCopies::FileCopies(session::Session& session)
    : rank_(session.ranks().rank),
      layout_(session.layout_of(all_ranks(session))),
      group_(session.groups().cpu_group_of("copies of files", all_ranks(session))) {}

void FileCopies::run(const GatherTexts& gather, const std::string& what, const fs::path& folder,
                     const CopyWish& wish) {
  std::vector<CopyWish> wishes;
  for (const std::string& text : gather(what, json_line(json{wish.offered, wish.wanted}))) {
    wishes.push_back(wish_of(text));
  }
  const std::vector<FileCopy> plan = plan_copies(wishes, layout_.host_of);
  std::map<std::string, IncomingFile> incoming;
  const auto make_room = [&] {
    for (const FileCopy& copy : plan) {
      if (copy.to != rank_) continue;
      incoming.emplace(copy.name, IncomingFile(folder / copy.name, copy.bytes));
    }
  };
  run_collectively([&] { with_files(make_room); },
                   [&](const std::string& error) { end_together(gather, what, error); });
  run_collectively([&] { transfer(what, folder, plan, incoming); },
                   [&](const std::string& error) { end_together(gather, what, error); });
}

void FileCopies::transfer(const std::string& what, const fs::path& folder,
                          const std::vector<FileCopy>& plan,
                          std::map<std::string, IncomingFile>& incoming) const {
  std::vector<c10::intrusive_ptr<c10d::Work>> sends;
  std::vector<std::vector<at::Tensor>> sent;  // alive until it is
  int peer = rank_;
  try {
    // In the order of the plan a file is here before it goes on to another host.
    for (std::size_t number = 0; number < plan.size(); ++number) {
      const FileCopy& copy = plan[number];
      const int tag = static_cast<int>(number);
      if (copy.to == rank_) {
        peer = copy.from;
        IncomingFile& file = incoming.at(copy.name);
        if (copy.bytes > 0) {
          std::vector<at::Tensor> bytes{mapped(file.draft(), copy.bytes, /*written=*/true)};
          group_->recv(bytes, copy.from, tag)->wait();
        }
        file.keep();
      } else if (copy.from == rank_ && copy.bytes > 0) {
        peer = copy.to;
        sent.push_back({mapped(folder / copy.name, copy.bytes, /*written=*/false)});
        sends.push_back(group_->send(sent.back(), copy.to, tag));
      }
    }
    for (const auto& send : sends) send->wait();
  } catch (const std::exception& error) {
    throw session::lost_connection(what, rank_, session::described({peer}),
                                   transport::error_text(error));
  }
}

}  // namespace smp::checkpoint
