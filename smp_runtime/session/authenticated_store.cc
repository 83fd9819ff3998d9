// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/authenticated_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::session {

AuthenticatedStore::AuthenticatedStore(StorePtr store, const JobSecret& secret)
    : store_(std::move(store)), secret_(secret), key_(secret, "store") {}

c10::intrusive_ptr<AuthenticatedStore> AuthenticatedStore::over(StorePtr store) const {
  auto other = c10::make_intrusive<AuthenticatedStore>(std::move(store), secret_);
  other->counters_ = counters_;
  return other;
}

AuthenticatedStore::StorePtr AuthenticatedStore::clone() { return over(store_->clone()); }

void AuthenticatedStore::Counters::note(const std::string& key) {
  const std::lock_guard lock(mutex);
  if (std::ranges::find(keys, key) != keys.end()) return;
  if (keys.size() == kCounters) keys.pop_front();
  keys.push_back(key);
}

bool AuthenticatedStore::Counters::has(const std::string& key) {
  const std::lock_guard lock(mutex);
  return std::ranges::find(keys, key) != keys.end();
}

AuthenticatedStore::Bytes AuthenticatedStore::opened(const std::string& key, Bytes sealed) const {
  if (auto value = key_.open(key, sealed)) return std::move(*value);
  const std::string_view text(reinterpret_cast<const char*>(sealed.data()), sealed.size());
  if (parse_number<std::int64_t>(text) && counters_->has(key)) return sealed;
  throw HostError(
      "the value of \"{}\" in the job's store does not carry the code of the job's secret: a "
      "process outside the job has written it, or one of the job has another {} than this one; "
      "give all ranks the same, and let nobody else reach the store's port",
      key, kSecretVariable);
}

void AuthenticatedStore::set(const std::string& key, const Bytes& value) {
  store_->set(key, key_.seal(key, value));
}

AuthenticatedStore::Bytes AuthenticatedStore::compareSet(const std::string& key,
                                                         const Bytes& expected,
                                                         const Bytes& desired) {
  // An empty value that is expected is that of a key which is absent, or was set so.
  const Bytes whole = key_.seal(key, desired);
  if (!expected.empty())
    return opened(key, store_->compareSet(key, key_.seal(key, expected), whole));
  Bytes found = store_->compareSet(key, {}, whole);
  const Bytes nothing = key_.seal(key, {});
  if (found == nothing && found != whole) found = store_->compareSet(key, nothing, whole);
  return opened(key, std::move(found));
}

AuthenticatedStore::Bytes AuthenticatedStore::get(const std::string& key) {
  return opened(key, store_->get(key));
}

std::vector<AuthenticatedStore::Bytes> AuthenticatedStore::multiGet(
    const std::vector<std::string>& keys) {
  std::vector<Bytes> values = store_->multiGet(keys);
  for (std::size_t i = 0; i < keys.size(); ++i) values[i] = opened(keys[i], std::move(values[i]));
  return values;
}

std::int64_t AuthenticatedStore::add(const std::string& key, std::int64_t value) {
  counters_->note(key);
  return store_->add(key, value);
}

bool AuthenticatedStore::deleteKey(const std::string& key) { return store_->deleteKey(key); }

bool AuthenticatedStore::check(const std::vector<std::string>& keys) { return store_->check(keys); }

std::int64_t AuthenticatedStore::getNumKeys() { return store_->getNumKeys(); }

void AuthenticatedStore::wait(const std::vector<std::string>& keys) { store_->wait(keys); }

void AuthenticatedStore::wait(const std::vector<std::string>& keys,
                              const std::chrono::milliseconds& timeout) {
  store_->wait(keys, timeout);
}

const std::chrono::milliseconds& AuthenticatedStore::getTimeout() const noexcept {
  return store_->getTimeout();
}

void AuthenticatedStore::setTimeout(const std::chrono::milliseconds& timeout) {
  store_->setTimeout(timeout);
}

void AuthenticatedStore::queuePush(const std::string& key, const Bytes& value) {
  store_->queuePush(key, key_.seal(key, value));
}

AuthenticatedStore::Bytes AuthenticatedStore::queuePop(const std::string& key, bool block) {
  return opened(key, store_->queuePop(key, block));
}

std::int64_t AuthenticatedStore::queueLen(const std::string& key) { return store_->queueLen(key); }

std::vector<std::string> AuthenticatedStore::listKeys() { return store_->listKeys(); }

}  // namespace smp::session
