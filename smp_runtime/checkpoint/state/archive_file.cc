// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/archive_file.h"

#include <cstddef>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include "smp_runtime/checkpoint/file_blocks.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

/// Smaller ones cost less than a thread that writes them.
constexpr std::size_t kLongBytes = std::size_t{1} << 20;

/// Takes the bytes of an archive for a file. A long storage is written beside the checksum that the
/// archive makes of the next one.
class ArchiveStream {
 public:
  explicit ArchiveStream(AtomicFile& file) : file_(file) {}

  /// Tells that the bytes of `storage` come, behind what names them. They stay as they are.
  void announce(at::Tensor storage) { storage_ = std::move(storage); }

  /// Reports that all is well: the destructor of an archive that failed ends it once more, and lets
  /// no error through.
  std::size_t write(const void* data, std::size_t size) {
    try {
      if (!failure_) take(std::span(static_cast<const std::byte*>(data), size));
    } catch (...) {
      failure_ = std::current_exception();
    }
    return size;
  }
  [[nodiscard]] bool has_failed() const { return failure_ != nullptr; }
  /// Blocks until all is written. Throws what failed.
  void finish() {
    if (failure_) std::rethrow_exception(failure_);
    settle();
  }

 private:
  void take(std::span<const std::byte> bytes) {
    if (storage_.defined() && bytes.size() >= kLongBytes &&
        bytes.data() == storage_.const_data_ptr()) {
      settle();
      writing_ = std::async(
          kBeside, [this, bytes, storage = std::exchange(storage_, {})] { file_.write(bytes); });
    } else if (writing_.valid() && behind_.size() + bytes.size() < kLongBytes) {
      behind_.insert(behind_.end(), bytes.begin(), bytes.end());
    } else {
      settle();
      file_.write(bytes);
    }
  }

  void settle() {
    if (!writing_.valid()) return;
    writing_.get();
    file_.write(std::exchange(behind_, {}));
  }

  AtomicFile& file_;
  at::Tensor storage_;
  std::exception_ptr failure_;
  std::vector<std::byte> behind_;  ///< what is being written
  std::future<void> writing_;
};

}  // namespace

FileDigest write_archive(const std::filesystem::path& path, std::string_view pickle,
                         std::span<const at::Tensor> storages) {
  AtomicFile file(path);
  ArchiveStream stream(file);
  try {
    caffe2::serialize::PyTorchStreamWriter archive(
        [&](const void* data, std::size_t size) { return stream.write(data, size); });
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    std::size_t number = 0;
    for (const at::Tensor& storage : storages) {
      if (stream.has_failed()) break;
      const at::Tensor bytes = storage.cpu();
      stream.announce(bytes);
      archive.writeRecord(fmt::format("data/{}", number++), bytes.const_data_ptr(), bytes.nbytes());
    }
    archive.writeEndOfFile();
    stream.finish();
  } catch (const c10::Error& error) {
    throw HostError("cannot write {}: {}", path.string(), error.what_without_backtrace());
  }
  return file.commit();
}

}  // namespace smp::checkpoint
