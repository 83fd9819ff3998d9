// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/c10d_store.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "smp_runtime/core/error.h"

namespace smp::dataparallel {

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

bool C10dStore::has(const std::string& key) { return store_->check({key}); }

void C10dStore::set(const std::string& key, const std::string& value) { store_->set(key, value); }

std::string C10dStore::get(const std::string& key, const transport::WaitLimit& limit) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit.deadline -
                                                                          transport::Clock::now());
  try {
    store_->wait({key}, std::max(left, std::chrono::milliseconds(1)));
    return store_->get_to_str(key);
  } catch (const c10::Error& error) {
    throw HostError(
        "{}: waited {} ms for \"{}\" in the job's store: {}; did all ranks make the group?",
        limit.operation, limit.timeout.count(), key, error.what_without_backtrace());
  }
}

}  // namespace smp::dataparallel
