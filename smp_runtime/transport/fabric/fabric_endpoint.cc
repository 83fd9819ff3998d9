// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/fabric_endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/fabric/fabric_library.h"

namespace smp::transport {
namespace {

constexpr uint32_t kVersion = FI_VERSION(1, 14);

static_assert(sizeof(FabricEndpoint::Context::internal) >= sizeof(fi_context2));
static_assert(FabricEndpoint::kAnybody == FI_ADDR_UNSPEC);

void check(int64_t result, const char* call, const std::string& provider) {
  if (result == 0) return;
  const int error = static_cast<int>(-result);
  throw HostError(
      "libfabric provider {}: {} failed: {}", provider, call,
      error == FI_EMFILE ? system_error_text(EMFILE) : FabricLibrary::get().strerror(error));
}

using InfoPointer = std::unique_ptr<fi_info, void (*)(fi_info*)>;

/// Offers of a provider with these `capabilities`, the best first; null for none.
InfoPointer offers(const std::string& provider, const FabricSettings& settings,
                   uint64_t capabilities) {
  const FabricLibrary& library = FabricLibrary::get();
  const InfoPointer hints(library.dupinfo(nullptr), library.freeinfo);
  SMP_CHECK(hints != nullptr, "fi_allocinfo gave nothing");
  hints->caps = capabilities;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  // EFA is unordered by itself: mostly every message has a tag of its own.
  const uint64_t order = settings.ordered ? FI_ORDER_SAS : 0;
  hints->tx_attr->msg_order = order;
  hints->rx_attr->msg_order = order;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  const std::string& address = settings.address;
  const bool over_ip = provider != "efa" && provider != "shm" && !address.empty();
  fi_info* found = nullptr;
  const int result =
      library.getinfo(kVersion, over_ip ? address.c_str() : nullptr, over_ip ? "0" : nullptr,
                      over_ip ? FI_SOURCE : 0, hints.get(), &found);
  return {result == 0 ? found : nullptr, library.freeinfo};
}

/// The same, those that tell senders apart if there are any.
InfoPointer offers(const std::string& provider, const FabricSettings& settings) {
  InfoPointer found = offers(provider, settings, FI_TAGGED | FI_MSG | FI_DIRECTED_RECV);
  return found != nullptr ? std::move(found) : offers(provider, settings, FI_TAGGED | FI_MSG);
}

/// The providers that are here for any use, each once, without the layers above them.
std::vector<std::string> providers_here() {
  const FabricLibrary& library = FabricLibrary::get();
  fi_info* found = nullptr;
  if (library.getinfo(kVersion, nullptr, nullptr, 0, nullptr, &found) != 0) return {};
  const InfoPointer list(found, library.freeinfo);
  std::vector<std::string> names;
  for (const fi_info* one = found; one != nullptr; one = one->next) {
    const std::string_view layered = one->fabric_attr->prov_name;
    std::string name(layered.substr(0, layered.find(';')));
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

/// Of a connection that ends before it has said who it is the tcp provider asks errno for the
/// reason, which nobody has set; where an EAGAIN is left there it looks again without a pause, for
/// ever (xnet_recv_cm_msg of libfabric 1.17). Scans for open ports leave such connections.
void forget_errno() { errno = 0; }

}  // namespace

template <typename T>
void FabricEndpoint::Closer::operator()(T* object) const {
  if constexpr (std::is_same_v<T, fi_info>) {
    FabricLibrary::get().freeinfo(object);
  } else {
    fi_close(&object->fid);
  }
}

FabricEndpoint::FabricEndpoint(const FabricSettings& settings) {
  const std::vector<std::string> candidates = settings.provider.empty()
                                                  ? std::vector<std::string>{"efa", "tcp"}
                                                  : std::vector<std::string>{settings.provider};
  for (const std::string& candidate : candidates) {
    const InfoPointer found = offers(candidate, settings);
    if (found == nullptr) continue;
    int count = 0;
    for (const fi_info* one = found.get(); one != nullptr; one = one->next) ++count;
    const fi_info* chosen = found.get();
    // Cards of EFA are equal; what others offer is sorted by how well it fits.
    for (int i = settings.card % count; candidate == "efa" && i > 0; --i) chosen = chosen->next;
    info_.reset(FabricLibrary::get().dupinfo(chosen));
    provider_ = info_->fabric_attr->prov_name;
    open();
    return;
  }
  const uint32_t version = FabricLibrary::get().version();
  const std::vector<std::string> here = providers_here();
  throw ConfigError(
      "libfabric {}.{} offers no provider \"{}\" with tagged messages here{}; fi_getinfo finds: {} "
      "(FI_PROVIDER may hide others); {}",
      FI_MAJOR(version), FI_MINOR(version),
      settings.provider.empty() ? "efa, net or tcp" : settings.provider,
      settings.address.empty() ? "" : fmt::format(" (address {})", settings.address),
      here.empty() ? "none" : fmt::format("{}", fmt::join(here, ", ")),
      settings.provider == "efa"
          ? "is an EFA device attached to this host, and its installer's libfabric in the image? "
            "fi_info -p efa says; unset SMDDP_FABRIC_PROVIDER and FI_PROVIDER to go without"
          : "set SMDDP_FABRIC_PROVIDER to one of them, or unset it and FI_PROVIDER");
}

void FabricEndpoint::open() {
  fid_fabric* fabric = nullptr;
  check(FabricLibrary::get().fabric(info_->fabric_attr, &fabric), "fi_fabric", provider_);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain", provider_);
  domain_.reset(domain);
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  check(fi_av_open(domain, &table, &addresses, nullptr), "fi_av_open", provider_);
  addresses_.reset(addresses);

  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  const bool sleeps = fi_cq_open(domain, &attributes, &queue, nullptr) == 0;
  if (!sleeps) {
    attributes.wait_obj = FI_WAIT_NONE;
    check(fi_cq_open(domain, &attributes, &queue, nullptr), "fi_cq_open", provider_);
  }
  queue_.reset(queue);
  if (sleeps && fi_control(&queue->fid, FI_GETWAIT, &wait_file_) != 0) wait_file_ = -1;

  fid_ep* endpoint = nullptr;
  check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint", provider_);
  endpoint_.reset(endpoint);
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind", provider_);
  check(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind", provider_);
  check(fi_enable(endpoint), "fi_enable", provider_);
  registers_ = (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
}

FabricEndpoint::~FabricEndpoint() {
  endpoint_.reset();  // before what it is bound to
  for (const Region& region : regions_) fi_close(&region.registration->fid);
}

std::string FabricEndpoint::address() const {
  std::array<char, 512> bytes{};
  size_t size = bytes.size();
  check(fi_getname(&endpoint_->fid, bytes.data(), &size), "fi_getname", provider_);
  return {bytes.data(), size};
}

uint64_t FabricEndpoint::add_peer(std::string_view address) {
  fi_addr_t number = FI_ADDR_UNSPEC;
  if (fi_av_insert(addresses_.get(), address.data(), 1, &number, 0, nullptr) != 1) {
    throw HostError(
        "libfabric provider {}: the address of a peer is not taken; do all ranks use "
        "one provider?",
        provider_);
  }
  return number;
}

void FabricEndpoint::register_memory(std::span<std::byte> region) {
  if (registers_) regions_.push_back({.bytes = region, .registration = registered(region)});
}

fid_mr* FabricEndpoint::registered(std::span<const std::byte> bytes) {
  fid_mr* registration = nullptr;
  check(fi_mr_reg(domain_.get(), bytes.data(), bytes.size(), FI_SEND | FI_RECV, 0, keys_++, 0,
                  &registration, nullptr),
        "fi_mr_reg", provider_);
  return registration;
}

void* FabricEndpoint::descriptor(std::span<const std::byte> bytes, Context& context) {
  if (!registers_ || bytes.empty()) return nullptr;
  for (const Region& region : regions_) {
    if (bytes.data() >= region.bytes.data() &&
        bytes.data() + bytes.size() <= region.bytes.data() + region.bytes.size()) {
      return fi_mr_desc(region.registration);
    }
  }
  if (context.registration == nullptr) context.registration = registered(bytes);
  return fi_mr_desc(context.registration);
}

bool FabricEndpoint::send(uint64_t peer, uint64_t tag, std::span<const std::byte> bytes,
                          Context& context) {
  const ssize_t result = fi_tsend(endpoint_.get(), bytes.data(), bytes.size(),
                                  descriptor(bytes, context), peer, tag, &context);
  if (result == -FI_EAGAIN) return false;
  check(result, "fi_tsend", provider_);
  return true;
}

bool FabricEndpoint::receive(uint64_t peer, uint64_t tag, uint64_t ignored,
                             std::span<std::byte> bytes, Context& context) {
  const ssize_t result = fi_trecv(endpoint_.get(), bytes.data(), bytes.size(),
                                  descriptor(bytes, context), peer, tag, ignored, &context);
  if (result == -FI_EAGAIN) return false;
  check(result, "fi_trecv", provider_);
  return true;
}

void FabricEndpoint::complete(Context& context) {
  if (context.registration == nullptr) return;
  fi_close(&context.registration->fid);
  context.registration = nullptr;
}

void FabricEndpoint::cancel(Context& context) { fi_cancel(&endpoint_->fid, &context); }

std::vector<FabricEndpoint::Completion> FabricEndpoint::poll_completions() {
  std::array<fi_cq_tagged_entry, 16> entries{};
  std::vector<Completion> completions;
  forget_errno();
  const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (count == -FI_EAGAIN) return completions;
  if (count == -FI_EAVAIL) {
    fi_cq_err_entry failed{};
    if (fi_cq_readerr(queue_.get(), &failed, 0) == 1) {
      completions.push_back({.context = static_cast<Context*>(failed.op_context),
                             .tag = failed.tag,
                             .size_bytes = failed.len,
                             .error = failed.err});
      complete(*completions.back().context);
    }
    return completions;
  }
  if (count < 0) check(count, "fi_cq_read", provider_);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    completions.push_back({.context = static_cast<Context*>(entries[i].op_context),
                           .tag = entries[i].tag,
                           .size_bytes = entries[i].len,
                           .error = 0});
    complete(*completions.back().context);
  }
  return completions;
}

bool FabricEndpoint::may_sleep() {
  fid* queues[] = {&queue_->fid};
  forget_errno();
  return wait_file_ >= 0 && fi_trywait(fabric_.get(), static_cast<fid**>(queues), 1) == 0;
}

}  // namespace smp::transport
