// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/parent_only_file.h"

#include <mutex>
#include <set>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace smp {
namespace {

/// Held over a fork, so that the child finds the set whole.
std::mutex forking;  // guards what follows
std::set<int>& parent_only() {
  static auto* const made = new std::set<int>;  // for children of destructors, too
  return *made;
}

void give_up_in_child() {
  if (!parent_only().empty()) {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int file : parent_only()) {
      // Without a free number the file is closed all the same.
      if (nothing < 0 || dup3(nothing, file, O_CLOEXEC) < 0) close(file);
    }
    if (nothing >= 0) close(nothing);
    parent_only().clear();
  }
  forking.unlock();
}

void watch_forks() {
  static const int watched =
      pthread_atfork([] { forking.lock(); }, [] { forking.unlock(); }, &give_up_in_child);
  static_cast<void>(watched);
}

}  // namespace

ParentOnlyFile::ParentOnlyFile(int file) : file_(file) {
  watch_forks();
  const std::lock_guard lock(forking);
  parent_only().insert(file);
}

ParentOnlyFile::~ParentOnlyFile() {
  const std::lock_guard lock(forking);
  parent_only().erase(file_);
}

}  // namespace smp
