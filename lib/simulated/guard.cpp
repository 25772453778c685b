// LibTorch's interfaces of a device type: devices, streams and events, its hooks and its allocators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "lib/simulated/current.h"

namespace heddle::simulated {
namespace {

thread_local int device_now = 0;
thread_local std::array<int64_t, Memory::kDevices> streams_now{};

c10::Device device_of(int index) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const int before = device_now;
    setDevice(device);
    return device_of(before);
  }
  c10::Device getDevice() const override { return device_of(device_now); }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) device_now = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const override { return current_stream(index(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device_of(index(device)), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of_pool(index(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream_of_pool(index(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  c10::DeviceIndex deviceCount() const noexcept override { return Memory::kDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Point();
    *static_cast<Point*>(*event) = Machine::get().record(index_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) Machine::get().wait(index_of(stream), *static_cast<Point*>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Machine::get().passed(*static_cast<Point*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Point*>(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Machine::get().synchronize(*static_cast<Point*>(event), "an event");
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Machine::get().passed(Machine::get().record(index_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Machine::get().synchronize(Machine::get().record(index_of(stream)), "a stream");
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Machine::get().synchronize_device(device, "a device");
  }

 private:
  static int index(c10::Device device) { return device.index() < 0 ? device_now : device.index(); }
};

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device = device_of(device_now);
    if (bytes == 0) return {nullptr, device};
    Block& block = Machine::get().allocate(bytes, device_now, streams_now[static_cast<size_t>(device_now)]);
    return {block.address, &block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Machine& machine = Machine::get();
    std::memcpy(machine.kernel_bytes(to), machine.kernel_bytes(from), bytes);
  }

 private:
  static void release(void* block) { Machine::get().free(*static_cast<Block*>(block)); }
};

// Host memory that copies may read and write while the host goes on.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* at = std::malloc(bytes == 0 ? 1 : bytes);
    const std::lock_guard lock(mutex());
    blocks()[static_cast<std::byte*>(at)] = bytes;
    return {at, at, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static bool holds(const void* address) {
    const std::lock_guard lock(mutex());
    auto next = blocks().upper_bound(static_cast<std::byte*>(const_cast<void*>(address)));
    if (next == blocks().begin()) return false;
    --next;
    return static_cast<const std::byte*>(address) < next->first + next->second;
  }

 private:
  static void release(void* at) {
    {
      const std::lock_guard lock(mutex());
      blocks().erase(static_cast<std::byte*>(at));
    }
    std::free(at);
  }
  static std::mutex& mutex() {
    static auto* one = new std::mutex();
    return *one;
  }
  static std::map<std::byte*, size_t>& blocks() {
    static auto* all = new std::map<std::byte*, size_t>();
    return *all;
  }
};

at::Allocator* device_allocator() {
  static auto* one = new DeviceAllocator();
  return one;
}

const at::Generator& generator_of(c10::DeviceIndex device) {
  static auto* all = new std::array<at::Generator, Memory::kDevices>([] {
    std::array<at::Generator, Memory::kDevices> made;
    for (at::Generator& one : made) one = at::detail::createCPUGenerator();
    return made;
  }());
  return (*all)[static_cast<size_t>(device < 0 ? device_now : device)];
}

}  // namespace

int current_device() {
  return device_now;
}

void set_current_device(int device) {
  device_now = device;
}

c10::Stream current_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, device_of(device), streams_now[static_cast<size_t>(device)]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream before = current_stream(stream.device_index());
  streams_now[static_cast<size_t>(stream.device_index())] = stream.id();
  return before;
}

c10::Stream stream_of_pool(int device) {
  static std::atomic<int64_t> next[Memory::kDevices];
  return c10::Stream(c10::Stream::UNSAFE, device_of(device), 1 + next[device]++ % 32);
}

int index_of(c10::Stream stream) {
  return Machine::get().stream(stream.device_index(), stream.id());
}

int current_index(int device) {
  return index_of(current_stream(device));
}

}  // namespace heddle::simulated

namespace at {

// The name by which LibTorch finds it.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return heddle::simulated::Memory::kDevices; }
  int getNumGPUs() const override { return heddle::simulated::Memory::kDevices; }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(heddle::simulated::current_device());
  }
  void setCurrentDevice(DeviceIndex device) const override { heddle::simulated::set_current_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  const Generator& getDefaultGenerator(DeviceIndex device) const override {
    return heddle::simulated::generator_of(device);
  }
  bool isPinnedPtr(const void* data) const override {
    return heddle::simulated::PinnedAllocator::holds(data);
  }
  Allocator* getPinnedMemoryAllocator() const override {
    static auto* one = new heddle::simulated::PinnedAllocator();
    return one;
  }
  Allocator* getCUDADeviceAllocator() const override { return heddle::simulated::device_allocator(); }
  Device getDeviceFromPtr(void*) const override { return {kCUDA, getCurrentDevice()}; }
  void deviceSynchronize(DeviceIndex device) const override {
    heddle::simulated::Machine::get().synchronize_device(device, "a device");
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at

namespace heddle::simulated {
namespace {

const bool registered = [] {
  c10::impl::registerDeviceGuard(at::kCUDA, new Guard());
  c10::SetAllocator(at::kCUDA, device_allocator());
  return true;
}();

}  // namespace
}  // namespace heddle::simulated
