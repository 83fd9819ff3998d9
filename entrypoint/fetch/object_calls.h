// SPDX-License-Identifier: Apache-2.0
// Whole objects of S3 for the Python package, which loads libsmp_transfer.so with ctypes and calls
// these functions: smdistributed/sagemaker/distributed/checkpoint/s3_objects.py declares them, too.
//
// Addresses are s3://bucket/key. No exception leaves a function. A call blocks until it is done, or
// given up after its retries.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

/// Objects that are reached with the credentials of this process. For one thread at a time.
struct SmpObjects;

/// Of a call that failed; `kind` is 0 otherwise.
struct SmpFailure {
  int kind;         ///< 1: what the user can correct; 2: S3, the network, this host; 3: no such
                    ///< object; 4: our bug
  char text[4092];  ///< ends in a zero byte
};

struct SmpObjectOptions {
  const char* region;       ///< null: that of the environment
  const char* profile;      ///< null: that of the environment
  int attempts;             ///< of a request that fails for what may pass
  int log_level;            ///< smp::log::Level as a number: the lowest that is logged
  std::int64_t part_bytes;  ///< of larger files
};

/// Null where it failed.
SmpObjects* smp_objects_open(const SmpObjectOptions* options, SmpFailure* failure);
void smp_objects_close(SmpObjects* objects);

/// Writes an object to a file, over what is there.
void smp_objects_get(SmpObjects* objects, const char* address, const char* file,
                     SmpFailure* failure);
void smp_objects_put(SmpObjects* objects, const char* file, const char* address,
                     SmpFailure* failure);
void smp_objects_remove(SmpObjects* objects, const char* address, SmpFailure* failure);

/// Keys that begin with that of `address`, each followed by a zero byte; `size` is the length of
/// all. To be given to smp_objects_free(). Null where it failed.
char* smp_objects_list(SmpObjects* objects, const char* address, std::size_t* size,
                       SmpFailure* failure);
void smp_objects_free(char* keys);

}  // extern "C"
