// Streams and events are the machine's; communicators know who has joined them.
#include "simulated/nccl/fake_nccl.h"

#include <cstdlib>
#include <cstring>

#include "lib/simulated/current.h"
#include "simulated/nccl/fake_comm.h"

namespace heddle::simulated {
namespace {

cudaStream_t named(int index) {
  return reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(index) + 1);
}

Point& point_of(cudaEvent_t event) {
  return *reinterpret_cast<Point*>(event);
}

ncclResult_t unique_id(ncclUniqueId* id) {
  const std::lock_guard lock(world().mutex);
  std::memset(id, 0, sizeof *id);
  const int number = world().next++;
  std::memcpy(id, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  int number = 0;
  std::memcpy(&number, &id, sizeof number);
  std::unique_lock lock(world().mutex);
  std::shared_ptr<Shared>& found = world().shared[number];
  if (!found) found = std::make_shared<Shared>();
  const std::shared_ptr<Shared> shared = found;
  shared->number = number;
  shared->size = size;
  ++shared->joined;
  world().joined[current_device()].push_back(number);
  world().changed.notify_all();
  const uint64_t era = world().era;
  world().changed.wait(lock, [&] { return shared->joined >= size || world().era != era; });
  if (world().era != era) return ncclSystemError;
  auto made = std::make_unique<ncclComm>();
  made->shared = shared;
  made->rank = rank;
  made->device = current_device();
  *comm = made.get();
  world().all.push_back(std::move(made));
  return ncclSuccess;
}

ncclResult_t async_error(ncclComm_t, ncclResult_t* error) {
  const std::lock_guard lock(world().mutex);
  *error = world().fails ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t abort(ncclComm_t comm) {
  const std::lock_guard lock(world().mutex);
  comm->aborted = true;
  ++world().aborted;
  if (comm->inside > 0) ++world().freed_in_use;
  for (const auto& [key, call] : comm->shared->calls) Machine::get().give_up(*call->meeting);
  world().changed.notify_all();
  return ncclSuccess;
}

ncclResult_t revoke(ncclComm_t comm, int) {
  const std::lock_guard lock(world().mutex);
  comm->revoked = true;
  for (const auto& [key, call] : comm->shared->calls) Machine::get().give_up(*call->meeting);
  world().changed.notify_all();
  return ncclSuccess;
}

const char* nccl_message(ncclResult_t result) {
  if (result == ncclRemoteError) return "remote process exited";
  if (result == ncclInvalidArgument) return "parts of a large call do not begin at multiples of 16 bytes";
  return "an error of NCCL";
}

nccl::Functions table() {
  nccl::Functions of{};
  of.exchange_device = [](int device) {
    const int before = current_device();
    set_current_device(device);
    return before;
  };
  of.current_stream = [](int device) { return named(current_index(device)); };
  of.pool_stream = [](int device) { return named(index_of(stream_of_pool(device))); };
  of.event_create = [](cudaEvent_t* event) {
    *event = reinterpret_cast<cudaEvent_t>(new Point());
    return cudaSuccess;
  };
  of.event_destroy = [](cudaEvent_t event) {
    delete &point_of(event);
    return cudaSuccess;
  };
  of.event_record = [](cudaEvent_t event, cudaStream_t stream) {
    point_of(event) = Machine::get().record(index_in(stream));
    return cudaSuccess;
  };
  of.event_query = [](cudaEvent_t event) {
    return Machine::get().advance(point_of(event)) ? cudaSuccess : cudaErrorNotReady;
  };
  of.stream_wait = [](cudaStream_t stream, cudaEvent_t event) {
    Machine::get().wait(index_in(stream), point_of(event));
    return cudaSuccess;
  };
  of.last_error = [] { return cudaSuccess; };
  of.cuda_message = [](cudaError_t) { return "an error of CUDA"; };
  of.unique_id = unique_id;
  of.init_rank = init_rank;
  of.async_error = async_error;
  of.abort = abort;
  of.revoke = revoke;
  add_calls(of);
  of.nccl_message = nccl_message;
  return of;
}

}  // namespace

World& world() {
  static auto* one = new World();
  return *one;
}

void FakeNccl::begin() {
  const std::lock_guard lock(world().mutex);
  ++world().era;
  world().shared.clear();
  world().joined.clear();
  world().aborted = world().freed_in_use = 0;
  world().holds = world().fails = false;
  world().lingers = {};
  world().large = kLarge;
  world().changed.notify_all();
}

std::map<int, std::vector<int>> FakeNccl::joined() {
  const std::lock_guard lock(world().mutex);
  return world().joined;
}

int FakeNccl::size_of(int number) {
  const std::lock_guard lock(world().mutex);
  return world().shared.at(number)->size;
}

int FakeNccl::aborted() {
  const std::lock_guard lock(world().mutex);
  return world().aborted;
}

int FakeNccl::freed_in_use() {
  const std::lock_guard lock(world().mutex);
  return world().freed_in_use;
}

void FakeNccl::set_large(size_t bytes) {
  world().large = bytes;
}

void FakeNccl::linger(std::chrono::milliseconds time) {
  const std::lock_guard lock(world().mutex);
  world().lingers = time;
}

void FakeNccl::start_driver() {
  const auto number = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  Machine::get().set_hardware({.queues = number("CUDA_DEVICE_MAX_CONNECTIONS", 8),
                               .ctas = 132,
                               .in_launch_order = number("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0});
}

void FakeNccl::hold_calls(bool hold) {
  const std::lock_guard lock(world().mutex);
  world().holds = hold;
  world().changed.notify_all();
}

bool FakeNccl::is_held() {
  const std::lock_guard lock(world().mutex);
  return world().holds && world().held > 0;
}

void FakeNccl::fail_all() {
  const std::lock_guard lock(world().mutex);
  world().fails = true;
}

}  // namespace heddle::simulated

namespace heddle::nccl {

const Functions& functions() {
  static const Functions all = simulated::table();
  return all;
}

}  // namespace heddle::nccl
