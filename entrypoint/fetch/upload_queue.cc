// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/upload_queue.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

std::int64_t microseconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

std::string staged_name(std::int64_t microseconds, const std::string& name) {
  constexpr std::int64_t kSecond = 1'000'000;
  const std::time_t seconds = microseconds / kSecond;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H-%M-%S", &parts);
  return fmt::format("{}-{:06}.{}", text.data(), microseconds % kSecond, name);
}

UploadQueue::UploadQueue(fs::path folder, fs::path staging, Upload upload)
    : folder_(std::move(folder)), staging_(std::move(staging)), upload_(std::move(upload)) {
  fs::create_directories(staging_);
  fs::permissions(staging_, fs::perms::owner_all);
  worker_ = std::thread([this] { run(); });
}

UploadQueue::~UploadQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  worker_.join();
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

std::optional<UploadQueue::State> UploadQueue::state_of(const fs::path& file) {
  struct stat what {};
  if (stat(file.c_str(), &what) != 0 || !S_ISREG(what.st_mode)) return std::nullopt;
  return State{.inode = what.st_ino,
               .size = what.st_size,
               .seconds = what.st_mtim.tv_sec,
               .nanoseconds = what.st_mtim.tv_nsec};
}

std::string UploadQueue::name_of(const fs::path& file) const {
  return file.lexically_relative(folder_).string();
}

void UploadQueue::add_if_changed(const fs::path& file) {
  const std::string name = name_of(file);
  const auto taken = taken_.find(name);
  const bool is_same = taken != taken_.end() && state_of(file) == taken->second;
  {
    const std::lock_guard lock(mutex_);
    if (is_same && !failed_.contains(name)) return;
  }
  add(file);
}

void UploadQueue::add(const fs::path& file) {
  const std::optional<State> state = state_of(file);
  if (!state) return;  // gone again, or no file
  const std::string name = name_of(file);
  // The file's own name can be as long as a name may be.
  constexpr std::size_t kLongestName = 200;
  const std::string short_name = file.filename().string().substr(0, kLongestName);
  Item item{.name = name, .copy = staging_ / staged_name(microseconds_now(), short_name)};
  std::error_code error;
  fs::copy_file(file, item.copy, fs::copy_options::overwrite_existing, error);
  if (error) {
    SMP_LOG(error, "intermediate output {} is not uploaded: copy to {}: {}", name,
            staging_.string(), error.message());
    fs::remove(item.copy, error);
    return;
  }
  taken_[name] = *state;
  {
    const std::lock_guard lock(mutex_);
    // An older copy that still waits would only be overwritten.
    std::erase_if(waiting_, [&name](const Item& other) {
      if (other.name != name) return false;
      std::error_code ignored;
      fs::remove(other.copy, ignored);
      return true;
    });
    waiting_.push_back(std::move(item));
  }
  changed_.notify_all();
}

void UploadQueue::finish() {
  std::unique_lock lock(mutex_);
  // No deadline: every upload has one, and whoever runs this process has one for all of it.
  changed_.wait(lock, [this] { return waiting_.empty() && !is_busy_; });
}

int UploadQueue::uploaded() const {
  const std::lock_guard lock(mutex_);
  return uploaded_;
}

int UploadQueue::failed() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(failed_.size());
}

void UploadQueue::run() {
  pthread_setname_np(pthread_self(), "upload");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (closing_) return;
    const Item item = std::move(waiting_.front());
    waiting_.pop_front();
    is_busy_ = true;
    lock.unlock();
    bool good = true;
    try {
      upload_(item.copy, item.name);
    } catch (const std::exception& error) {
      SMP_LOG(error, "intermediate output {} is not uploaded: {}", item.name, error.what());
      good = false;
    }
    std::error_code ignored;
    fs::remove(item.copy, ignored);
    lock.lock();
    is_busy_ = false;
    if (good) {
      ++uploaded_;
      failed_.erase(item.name);
    } else {
      failed_.insert(item.name);
    }
    changed_.notify_all();
  }
}

}  // namespace entrypoint::fetch
