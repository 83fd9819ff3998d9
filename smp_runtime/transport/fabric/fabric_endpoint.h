// SPDX-License-Identifier: Apache-2.0
// One libfabric endpoint for tagged messages between any two ranks (FI_EP_RDM), and what it needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct fi_info;
struct fid_fabric;
struct fid_domain;
struct fid_av;
struct fid_cq;
struct fid_ep;
struct fid_mr;

namespace smp::transport {

struct FabricSettings {
  /// libfabric's name, e.g. "efa" or "tcp"; empty: "efa" where a device is, else one over TCP. What
  /// is named and absent is an error, never replaced.
  std::string provider;
  /// Numeric address to use, for providers over IP.
  std::string address;
  /// Number of the network card among several, modulo their number.
  int card = 0;
  /// Messages of one pair of ranks with one tag arrive in the order of their sends.
  bool ordered = false;
};

/// Not safe for several threads at once; FabricLink adds that.
class FabricEndpoint {
 public:
  /// In place of a peer's number for receive(): any of them.
  static constexpr uint64_t kAnybody = ~uint64_t{0};

  /// State of an operation that is under way; the caller keeps it until completion.
  struct Context {
    alignas(16) std::array<void*, 8> internal{};  // libfabric's: it begins the object
    fid_mr* registration = nullptr;  // of memory that was not registered by register_memory()
  };
  /// Outcome of an operation.
  struct Completion {
    Context* context;
    uint64_t tag;       ///< of a received message
    size_t size_bytes;  ///< received
    int error;          ///< 0, or an FI_… number
  };

  /// Throws ConfigError if there is no such provider, HostError if it does not open.
  explicit FabricEndpoint(const FabricSettings& settings);
  FabricEndpoint(const FabricEndpoint&) = delete;
  FabricEndpoint& operator=(const FabricEndpoint&) = delete;
  ~FabricEndpoint();

  [[nodiscard]] const std::string& provider() const { return provider_; }
  /// Opaque bytes for add_peer() of others.
  [[nodiscard]] std::string address() const;

  /// The number of a peer for send() and receive().
  uint64_t add_peer(std::string_view address);

  /// Registers `region` with the provider for the endpoint's lifetime, if it requires that. Other
  /// memory is registered by each operation, which costs microseconds.
  void register_memory(std::span<std::byte> region);

  /// Both return false when the provider asks to try again after poll_completions(). `bytes` stay
  /// as they are until completion. A receive takes a message whose tag agrees but in `ignored`: of
  /// that peer, where the provider tells senders apart, as those of TCP, UDP and EFA do, else of
  /// anybody. That keeps strangers out who do not forge addresses; it proves nothing.
  bool send(uint64_t peer, uint64_t tag, std::span<const std::byte> bytes, Context& context);
  bool receive(uint64_t peer, uint64_t tag, uint64_t ignored, std::span<std::byte> bytes,
               Context& context);
  /// A receive that is cancelled completes with FI_ECANCELED, or as usual if it was too late.
  void cancel(Context& context);

  /// Drives the provider and gives what has completed, up to 16.
  [[nodiscard]] std::vector<Completion> poll_completions();

  /// For poll(): readable when poll_completions() has work. -1 where the provider must be polled.
  [[nodiscard]] int wait_file() const { return wait_file_; }
  /// Is it safe to sleep on wait_file()?
  [[nodiscard]] bool may_sleep();

 private:
  struct Closer {
    template <typename T>
    void operator()(T* object) const;
  };
  struct Region {
    std::span<std::byte> bytes;
    fid_mr* registration;
  };

  void open();
  fid_mr* registered(std::span<const std::byte> bytes);
  void* descriptor(std::span<const std::byte> bytes, Context& context);
  void complete(Context& context);

  std::string provider_;
  std::unique_ptr<fi_info, Closer> info_;
  std::unique_ptr<fid_fabric, Closer> fabric_;
  std::unique_ptr<fid_domain, Closer> domain_;
  std::unique_ptr<fid_av, Closer> addresses_;
  std::unique_ptr<fid_cq, Closer> queue_;
  std::unique_ptr<fid_ep, Closer> endpoint_;
  std::vector<Region> regions_;
  bool registers_ = false;
  uint64_t keys_ = 0;
  int wait_file_ = -1;
};

}  // namespace smp::transport
