// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/c10d_transport.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/inbox.h"
#include "smp_runtime/transport/tensor_meta.h"
#include "smp_runtime/transport/tensor_payload.h"

namespace smp::transport {
namespace {

constexpr int64_t kFrameBytes = 2048;
enum Tag : int { kFrameTag = 1, kRestTag = 2, kTensorTag = 3 };

/// What stands at the front of a frame.
struct Frame {
  uint64_t message_bytes;  ///< of Message::bytes
  uint64_t meta_bytes;     ///< of the tensors' metas, which follow the message
  uint32_t tensors;
  uint32_t goodbye;
};
constexpr size_t kRoom = static_cast<size_t>(kFrameBytes) - sizeof(Frame);

using Work = c10::intrusive_ptr<c10d::Work>;

/// One peer's two threads and their queues.
class Link {
 public:
  Link(c10d::Backend& backend, Inbox& inbox, int peer, int cuda_device)
      : backend_(backend),
        inbox_(inbox),
        peer_(peer),
        cuda_device_(cuda_device),
        sender_([this] { send_all(); }),
        receiver_([this] { receive_all(); }) {
    pthread_setname_np(sender_.native_handle(), "smp-send");
    pthread_setname_np(receiver_.native_handle(), "smp-receive");
  }

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void push(Message message) {
    {
      const std::lock_guard lock(mutex_);
      if (!lost_.empty()) throw HostError(lost_);
      queue_.push_back(std::move(message));
    }
    changed_.notify_all();
  }

  /// Queues the goodbye behind all messages.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
  }

  /// Waits for the goodbye to be sent, then ends both threads.
  void join(Clock::time_point deadline) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, deadline, [this] { return sent_all_; });
      aborted_ = true;
      if (pending_send_) pending_send_->abort();
      if (pending_receive_) pending_receive_->abort();
    }
    changed_.notify_all();
    sender_.join();
    receiver_.join();
  }

 private:
  void send_all() {
    try {
      while (true) {
        std::unique_lock lock(mutex_);
        // No deadline: an idle link waits for its next message or the end.
        changed_.wait(lock, [this] { return !queue_.empty() || closing_ || aborted_; });
        if (aborted_) break;
        if (queue_.empty()) {
          lock.unlock();
          send_frame({.message_bytes = 0, .meta_bytes = 0, .tensors = 0, .goodbye = 1}, "");
          break;
        }
        const Message message = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        send_message(message);
      }
    } catch (const std::exception& error) {
      lose(error.what());
    }
    const std::lock_guard lock(mutex_);
    sent_all_ = true;
    changed_.notify_all();
  }

  void send_message(const Message& message) {
    std::vector<at::Tensor> tensors;
    if (message.payload) {
      const auto* payload = dynamic_cast<const TensorPayload*>(message.payload.get());
      SMP_CHECK(payload != nullptr, "a payload that holds no tensors");
      for (const at::Tensor& tensor : payload->tensors) {
        tensors.push_back(tensor.detach().cpu().contiguous());
      }
    }
    std::string bytes = message.bytes;
    for (const at::Tensor& tensor : tensors) append_meta(bytes, tensor);
    send_frame({.message_bytes = message.bytes.size(),
                .meta_bytes = bytes.size() - message.bytes.size(),
                .tensors = static_cast<uint32_t>(tensors.size()),
                .goodbye = 0},
               bytes);
    for (at::Tensor& tensor : tensors) {
      if (tensor.numel() > 0) send_tensor(as_bytes(tensor), kTensorTag);
    }
  }

  void send_frame(const Frame& frame, std::string_view bytes) {
    at::Tensor buffer = at::empty({kFrameBytes}, at::kByte);
    auto* data = static_cast<char*>(buffer.data_ptr());
    const size_t inside = std::min(bytes.size(), kRoom);
    std::memcpy(data, &frame, sizeof(frame));
    std::memcpy(data + sizeof(frame), bytes.data(), inside);
    std::memset(data + sizeof(frame) + inside, 0, kRoom - inside);
    send_tensor(std::move(buffer), kFrameTag);
    if (inside == bytes.size()) return;
    at::Tensor rest = at::empty({static_cast<int64_t>(bytes.size() - inside)}, at::kByte);
    std::memcpy(rest.data_ptr(), bytes.data() + inside, bytes.size() - inside);
    send_tensor(std::move(rest), kRestTag);
  }

  /// Gloo knows few types; bytes are all it needs to know here. The view keeps the tensor alive.
  static at::Tensor as_bytes(const at::Tensor& tensor) {
    return at::from_blob(
        tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {}, at::kByte);
  }

  void send_tensor(at::Tensor tensor, Tag tag) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    wait_for(pending_send_, backend_.send(tensors, peer_, tag));
  }

  void receive_tensor(at::Tensor tensor, Tag tag) {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    wait_for(pending_receive_, backend_.recv(tensors, peer_, tag));
  }

  /// Keeps the operation where join() can abort it. Throws when it failed or was aborted.
  void wait_for(Work& pending, Work work) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw HostError("closed");
      pending = work;
    }
    const bool done = work->wait();
    const std::lock_guard lock(mutex_);
    pending.reset();
    if (!done) throw HostError("closed");
  }

  void receive_all() {
    try {
      while (true) {
        at::Tensor buffer = at::empty({kFrameBytes}, at::kByte);
        receive_tensor(buffer, kFrameTag);
        Frame frame{};
        std::memcpy(&frame, buffer.data_ptr(), sizeof(frame));
        if (frame.goodbye != 0) {
          {
            const std::lock_guard lock(mutex_);
            lost_ = fmt::format(
                "rank {} of the pipeline group has left the job; do all ranks call the step the "
                "same "
                "number of times?",
                peer_);
          }
          // Without the driver no step can go on, and none that the driver is in without the peer.
          if (peer_ == 0 || backend_.getRank() == 0) inbox_.fail(lost_);
          break;
        }
        inbox_.push(receive_message(frame, static_cast<const char*>(buffer.data_ptr())));
      }
    } catch (const std::exception& error) {
      lose(error.what());
    }
  }

  Message receive_message(const Frame& frame, const char* data) {
    const size_t total = frame.message_bytes + frame.meta_bytes;
    const size_t inside = std::min<size_t>(total, kRoom);
    std::string bytes(data + sizeof(frame), inside);
    if (inside < total) {
      at::Tensor rest = at::empty({static_cast<int64_t>(total - inside)}, at::kByte);
      receive_tensor(rest, kRestTag);
      bytes.append(static_cast<const char*>(rest.data_ptr()), total - inside);
    }
    std::string_view metas = std::string_view(bytes).substr(frame.message_bytes);
    std::vector<Received> received;
    for (uint32_t index = 0; index < frame.tensors; ++index) {
      received.push_back(allocate_from_meta(metas));
    }
    std::vector<at::Tensor> tensors;
    for (Received& one : received) {
      if (one.tensor.numel() > 0) receive_tensor(as_bytes(one.tensor), kTensorTag);
      tensors.push_back(
          one.device == at::kCPU
              ? std::move(one.tensor)
              : one.tensor.to(at::Device(one.device, static_cast<c10::DeviceIndex>(cuda_device_))));
    }
    bytes.resize(frame.message_bytes);
    return {
        .source = peer_,
        .bytes = std::move(bytes),
        .payload = tensors.empty() ? nullptr : std::make_shared<TensorPayload>(std::move(tensors))};
  }

  void lose(std::string_view reason) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      if (aborted_ || !lost_.empty()) return;
      text = lost_ = fmt::format("rank {} of the pipeline group is lost: {}", peer_, reason);
    }
    inbox_.fail(text);
  }

  c10d::Backend& backend_;
  Inbox& inbox_;
  const int peer_;
  const int cuda_device_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Message> queue_;
  Work pending_send_;
  Work pending_receive_;
  std::string lost_;
  bool closing_ = false;
  bool sent_all_ = false;
  bool aborted_ = false;

  std::thread sender_;  // last: they start with the members above in place
  std::thread receiver_;
};

}  // namespace

class C10dTransport::Impl {
 public:
  Impl(c10::intrusive_ptr<c10d::Backend> group, int cuda_device) : backend(std::move(group)) {
    links.resize(static_cast<size_t>(backend->getSize()));
    for (int peer = 0; peer < backend->getSize(); ++peer) {
      if (peer != backend->getRank()) {
        links[static_cast<size_t>(peer)] =
            std::make_unique<Link>(*backend, inbox, peer, cuda_device);
      }
    }
  }

  ~Impl() {
    const auto deadline = Clock::now() + kCloseTimeout;
    for (const auto& link : links) {
      if (link) link->close();
    }
    for (const auto& link : links) {
      if (link) link->join(deadline);
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  c10::intrusive_ptr<c10d::Backend> backend;
  Inbox inbox;
  std::vector<std::unique_ptr<Link>> links;
};

C10dTransport::C10dTransport(const std::string& group_name, int cuda_device) {
  try {
    impl_ = std::make_unique<Impl>(
        c10d::resolve_process_group(group_name)->getBackend(c10::DeviceType::CPU), cuda_device);
  } catch (const c10::Error& error) {
    throw HostError("the group {} has no CPU backend: {}", group_name,
                    error.what_without_backtrace());
  }
}

C10dTransport::~C10dTransport() = default;

int C10dTransport::rank() const { return impl_->backend->getRank(); }
int C10dTransport::size() const { return impl_->backend->getSize(); }

void C10dTransport::send(int destination, Message message) {
  SMP_CHECK(destination >= 0 && destination < size() && destination != rank(),
            "destination {} of {}", destination, size());
  impl_->links[static_cast<size_t>(destination)]->push(std::move(message));
}

std::optional<Message> C10dTransport::receive(Clock::time_point deadline) {
  return impl_->inbox.take(deadline);
}

}  // namespace smp::transport
