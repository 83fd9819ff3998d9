// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/background_saves.h"

#include <utility>

#include "smp_runtime/core/log.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::checkpoint {

BackgroundSaves::BackgroundSaves(session::Session& session, int limit)
    : session_(session), limit_(static_cast<std::size_t>(limit)) {}

void BackgroundSaves::close() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (rounds_) rounds_->stop();
  if (thread_.joinable()) thread_.join();
  jobs_.clear();
}

bool BackgroundSaves::are_under_way() {
  const std::lock_guard lock(mutex_);
  return !jobs_.empty();
}

void BackgroundSaves::await_room() { await_fewer_than(limit_); }

void BackgroundSaves::wait() { await_fewer_than(1); }

void BackgroundSaves::await_fewer_than(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() < count; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundSaves::add(std::shared_ptr<CheckpointSave> save,
                          std::vector<std::shared_ptr<FileSnapshot>> files,
                          std::function<void(CheckpointSave&)> publish) {
  for (const auto& file : files) file->wait();
  memory_->trim();  // of what was kept: this state has other sizes
  if (!rounds_) rounds_.emplace(session_, "background saves");
  save->meet_by([this](const std::string& what, const std::string& text) {
    return rounds_->all_gather(what, text);
  });
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(save), std::move(files), std::move(publish)});
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void BackgroundSaves::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    Job& job = jobs_.front();  // others are added behind it
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(job);
    } catch (...) {
      failure = std::current_exception();
      SMP_LOG(error, "{}", transport::error_text(failure));
    }
    lock.lock();
    if (!failure_) failure_ = failure;
    jobs_.pop_front();
    changed_.notify_all();
  }
}

void BackgroundSaves::write(Job& job) {
  job.save->together([&] {
    with_files([&] {
      for (const auto& file : job.files) job.save->add(file->write(job.save->folder()));
    });
  });
  job.files.clear();  // gives their memory back
  job.publish(*job.save);
}

}  // namespace smp::checkpoint
