// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/object_calls.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "entrypoint/fetch/aws_access.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

struct SmpObjects {
  entrypoint::fetch::AwsAccess aws;
};

namespace {

using entrypoint::S3Location;

enum Kind { kNone = 0, kConfig = 1, kHost = 2, kAbsent = 3, kBug = 4 };

void tell(SmpFailure& failure, Kind kind, const char* text) {
  failure.kind = kind;
  const std::size_t length = std::min(std::strlen(text), sizeof failure.text - 1);
  std::memcpy(failure.text, text, length);
  failure.text[length] = '\0';
}

/// Runs `call`, and tells of its error.
template <typename Call>
void guarded(SmpFailure* failure, const Call& call) {
  failure->kind = kNone;
  failure->text[0] = '\0';
  try {
    call();
  } catch (const entrypoint::fetch::NoSuchObject& error) {
    tell(*failure, kAbsent, error.what());
  } catch (const smp::ConfigError& error) {
    tell(*failure, kConfig, error.what());
  } catch (const smp::HostError& error) {
    tell(*failure, kHost, error.what());
  } catch (const std::exception& error) {
    tell(*failure, kBug, error.what());
  }
}

S3Location location(const char* address) {
  const auto found = entrypoint::parse_s3_location(address);
  if (!found) throw smp::ConfigError("\"{}\": expected s3://bucket/prefix", address);
  return *found;
}

smp::Variables variables_for(const SmpObjectOptions& options) {
  smp::Variables environment = smp::read_variables();
  if (options.region != nullptr) environment["AWS_REGION"] = options.region;
  if (options.profile != nullptr) {
    environment["AWS_PROFILE"] = options.profile;
    // Keys in variables would go before the profile that is asked for.
    for (const char* variable : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) {
      environment.erase(variable);
    }
  }
  return environment;
}

}  // namespace

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED SmpObjects* smp_objects_open(const SmpObjectOptions* options, SmpFailure* failure) {
  static std::once_flag configured;
  std::call_once(configured, [&] {
    smp::log::configure("s3", static_cast<smp::log::Level>(options->log_level));
  });
  SmpObjects* made = nullptr;
  guarded(failure, [&] {
    entrypoint::fetch::RetryPolicy policy = entrypoint::fetch::patient();
    policy.attempts = options->attempts;
    made = new SmpObjects{{variables_for(*options),
                           "",
                           {.part_bytes = options->part_bytes, .fetches_archives = false},
                           policy}};
  });
  return made;
}

EXPORTED void smp_objects_close(SmpObjects* objects) { delete objects; }

EXPORTED void smp_objects_get(SmpObjects* objects, const char* address, const char* file,
                              SmpFailure* failure) {
  guarded(failure, [&] { objects->aws.s3.download(location(address), file); });
}

EXPORTED void smp_objects_put(SmpObjects* objects, const char* file, const char* address,
                              SmpFailure* failure) {
  guarded(failure, [&] { objects->aws.s3.upload(file, location(address)); });
}

EXPORTED void smp_objects_remove(SmpObjects* objects, const char* address, SmpFailure* failure) {
  guarded(failure, [&] { objects->aws.s3.remove(location(address)); });
}

EXPORTED char* smp_objects_list(SmpObjects* objects, const char* address, std::size_t* size,
                                SmpFailure* failure) {
  char* keys = nullptr;
  guarded(failure, [&] {
    std::string all;
    for (const std::string& key : objects->aws.s3.list(location(address))) all += key + '\0';
    keys = static_cast<char*>(std::malloc(std::max<std::size_t>(all.size(), 1)));
    if (keys == nullptr) throw smp::HostError("no memory for a list of {} bytes", all.size());
    std::memcpy(keys, all.data(), all.size());
    *size = all.size();
  });
  return keys;
}

EXPORTED void smp_objects_free(char* keys) { std::free(keys); }

}  // extern "C"
