// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/archive_file.h"

#include <exception>

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include "smp_runtime/core/error.h"

namespace smp::checkpoint {

FileDigest write_archive(const std::filesystem::path& path, std::string_view pickle,
                         std::span<const std::span<const std::byte>> storages) {
  AtomicFile file(path);
  // The archive's destructor ends a file that failed once more, and lets no error through: it is
  // told that all is well.
  std::exception_ptr failure;
  try {
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, std::size_t size) {
      try {
        if (!failure) file.write(std::span(static_cast<const std::byte*>(data), size));
      } catch (...) {
        failure = std::current_exception();
      }
      return size;
    });
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    std::size_t number = 0;
    for (const std::span<const std::byte> storage : storages) {
      if (failure) break;
      archive.writeRecord(fmt::format("data/{}", number++), storage.data(), storage.size());
    }
    archive.writeEndOfFile();
  } catch (const c10::Error& error) {
    throw HostError("cannot write {}: {}", path.string(), error.what_without_backtrace());
  }
  if (failure) std::rethrow_exception(failure);
  return file.commit();
}

}  // namespace smp::checkpoint
