// The one file that includes Gloo. Only sends and receives are used: the collectives are heddle's own, in
// rank order.
#include "lib/transport/gloo/gloo_wire.h"

#include <ATen/ops/from_blob.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::mesh {

Transfer::~Transfer() = default;
Wire::~Wire() = default;

struct GlooDevice {
  std::shared_ptr<::gloo::transport::Device> device;
};

namespace {

constexpr const char* kInterfaceHint =
    "Name the interface through which the machines reach each other, or unset the variable. Then heddle uses "
    "the interface that leads to MASTER_ADDR.";

}  // namespace

std::string interface_of_environment() {
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string list = given == nullptr ? "" : given, name = list.substr(0, list.find(','));
  if (name.empty()) return name;
  std::set<std::string> names;
  if (ifaddrs* all = nullptr; ::getifaddrs(&all) == 0) {
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) names.insert(each->ifa_name);
    ::freeifaddrs(all);
  }
  if (names.contains(name)) return name;
  throw Error(ErrorCode::usage, "environment GLOO_SOCKET_IFNAME",
              "is '" + list + "', and this machine has no interface " + name + "; it has " +
                  text::join(std::vector<std::string>(names.begin(), names.end())),
              kInterfaceHint);
}

void refuse_loopback(const std::string& interface) {
  bool is_loopback = false;
  if (ifaddrs* all = nullptr; ::getifaddrs(&all) == 0) {
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next)
      is_loopback |= each->ifa_name == interface && (each->ifa_flags & IFF_LOOPBACK) != 0;
    ::freeifaddrs(all);
  }
  if (!is_loopback) return;
  throw Error(
      ErrorCode::usage, "environment GLOO_SOCKET_IFNAME",
      "is '" + interface + "', which other machines cannot reach, and the ranks are on several machines",
      kInterfaceHint);
}

std::shared_ptr<GlooDevice> open_gloo_device(const std::string& interface, const std::string& address) {
  using Gloo = c10d::ProcessGroupGloo;
  return std::make_shared<GlooDevice>(GlooDevice{interface.empty()
                                                     ? Gloo::createDeviceForHostname(address)
                                                     : Gloo::createDeviceForInterface(interface)});
}

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

constexpr std::chrono::hours kNoLimit{24 * 365};  // a timeout of Gloo would break all of its connections

// The works that may block a thread, for abort().
struct Underway {
  std::mutex mutex;
  std::set<c10d::Work*> works;
};

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(WorkPtr work, std::shared_ptr<Underway> underway)
      : work_(std::move(work)), underway_(std::move(underway)) {
    const std::lock_guard lock(underway_->mutex);
    underway_->works.insert(work_.get());
  }
  ~GlooTransfer() override {
    const std::lock_guard lock(underway_->mutex);
    underway_->works.erase(work_.get());
  }
  void wait() override {
    if (!work_->wait(kNoLimit)) throw std::runtime_error("the wait was aborted");
  }
  void abort() override { work_->abort(); }

 private:
  WorkPtr work_;
  std::shared_ptr<Underway> underway_;
};

class GlooWire : public Wire {
 public:
  explicit GlooWire(c10::intrusive_ptr<c10d::ProcessGroupGloo> group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> send(const void* data, size_t count, int peer, int tag) override {
    std::vector<at::Tensor> tensors = {view(const_cast<void*>(data), count)};
    const std::lock_guard lock(mutex_);
    return std::make_unique<GlooTransfer>(group_->send(tensors, peer, tag), underway_);
  }

  std::unique_ptr<Transfer> receive(void* data, size_t count, int peer, int tag) override {
    std::vector<at::Tensor> tensors = {view(data, count)};
    const std::lock_guard lock(mutex_);
    return std::make_unique<GlooTransfer>(group_->recv(tensors, peer, tag), underway_);
  }

  void abort() override {
    const std::lock_guard lock(underway_->mutex);
    for (c10d::Work* work : underway_->works) work->abort();
  }

 private:
  static at::Tensor view(void* data, size_t count) {
    return at::from_blob(data, {static_cast<int64_t>(count)}, at::TensorOptions(at::kByte));
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::mutex mutex_;
  std::shared_ptr<Underway> underway_ = std::make_shared<Underway>();
};

}  // namespace

std::unique_ptr<Wire> connect_gloo(c10::intrusive_ptr<c10d::Store> store, const GlooDevice& device,
                                   const GlooWireOptions& options) {
  auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
  settings->devices.push_back(device.device);
  settings->threads = 1;  // Gloo's own collectives are not used
  settings->group_name = options.name;
  settings->global_ranks_in_group.assign(options.ranks.begin(), options.ranks.end());
  auto scoped = c10::make_intrusive<c10d::PrefixStore>(options.name, std::move(store));
  return std::make_unique<GlooWire>(c10::make_intrusive<c10d::ProcessGroupGloo>(
      scoped, options.rank, static_cast<int>(options.ranks.size()), settings));
}

}  // namespace heddle::mesh
