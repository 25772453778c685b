// Calls of NCCL for each operation.
#include "cuda/group.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <vector>

#include "cuda/check.h"
#include "cuda/host_call.h"

namespace heddle::nccl {
namespace {

constexpr int kIdTag = (1 << 29) - 1;  // tag of the message with a communicator's id between two ranks

bool reduces(mesh::Operation operation) {
  return operation == mesh::Operation::all_reduce || operation == mesh::Operation::reduce_scatter;
}

// A bool is sent as a byte. As on the CPU, bools cannot be summed.
ncclDataType_t type_of(const mesh::Call& call, const std::string& axis) {
  const at::ScalarType type = (call.in.defined() ? call.in : call.out).scalar_type();
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kLong:
      return ncclInt64;
    case at::kInt:
      return ncclInt32;
    case at::kByte:
      return ncclUint8;
    case at::kChar:
      return ncclInt8;
    case at::kBool:
      if (!reduces(call.operation)) return ncclUint8;
      [[fallthrough]];
    default:
      throw Error(ErrorCode::internal, "nccl",
                  std::string(mesh::name_of(call.operation)) + " on " + axis + ": NCCL does not support " +
                      c10::toString(type));
  }
}

// Started work. It keeps its tensors until the current stream waits for it.
class DeviceWork : public Work {
 public:
  DeviceWork(std::vector<mesh::Call> calls, int device, std::shared_ptr<Event> done,
             std::shared_ptr<Fault> fault)
      : calls_(std::move(calls)), device_(device), done_(std::move(done)), fault_(std::move(fault)) {}
  // If work is dropped on an error, the stream still waits, so that memory is not reused too early.
  ~DeviceWork() override {
    if (done_ == nullptr) return;
    try {
      done_->block(functions().current_stream(device_));
    } catch (const Error&) {
    }
  }
  void wait() override {
    fault_->rethrow();
    if (done_ == nullptr) return;
    done_->block(functions().current_stream(device_));
    done_.reset();
    calls_.clear();
  }

 private:
  std::vector<mesh::Call> calls_;
  const int device_;
  std::shared_ptr<Event> done_;
  std::shared_ptr<Fault> fault_;
};

void give(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw Error(ErrorCode::internal, "nccl", std::string(call) + ": " + functions().nccl_message(result),
              "set NCCL_DEBUG=WARN for details from NCCL");
}

int64_t row_of(const at::Tensor& tensor) {
  return c10::multiply_integers(tensor.sizes().slice(1));
}

void exchange_rows(const mesh::Call& call, ncclDataType_t type, int size, ncclComm_t comm,
                   cudaStream_t stream) {
  const auto* from = static_cast<const char*>(call.in.const_data_ptr());
  auto* to = static_cast<char*>(call.out.mutable_data_ptr());
  for (int peer = 0; peer < size; ++peer) {
    const int64_t sent = call.in_rows[peer] * row_of(call.in), come = call.out_rows[peer] * row_of(call.out);
    if (sent > 0)
      give(functions().send(from, static_cast<size_t>(sent), type, peer, comm, stream), "all_to_all");
    if (come > 0)
      give(functions().receive(to, static_cast<size_t>(come), type, peer, comm, stream), "all_to_all");
    from += sent * static_cast<int64_t>(call.in.element_size());
    to += come * static_cast<int64_t>(call.out.element_size());
  }
}

void enqueue_collective(const mesh::Call& call, ncclDataType_t type, int size, ncclComm_t comm,
                        cudaStream_t stream) {
  const void* in = call.in.const_data_ptr();
  void* out = call.out.mutable_data_ptr();
  const auto count = static_cast<size_t>(call.operation == mesh::Operation::reduce_scatter ? call.out.numel()
                                                                                           : call.in.numel());
  constexpr ncclRedOp_t kOperations[] = {ncclSum, ncclMax, ncclAvg};  // in the order of Reduce
  const ncclRedOp_t op = kOperations[static_cast<int>(call.reduce)];
  switch (call.operation) {
    case mesh::Operation::all_gather:
      return give(functions().all_gather(in, out, count, type, comm, stream), "all_gather");
    case mesh::Operation::reduce_scatter:
      return give(functions().reduce_scatter(in, out, count, type, op, comm, stream), "reduce_scatter");
    case mesh::Operation::all_reduce:
      return give(functions().all_reduce(in, out, count, type, op, comm, stream), "all_reduce");
    case mesh::Operation::broadcast:
      return give(functions().broadcast(in, out, count, type, call.peer, comm, stream), "broadcast");
    default:
      return exchange_rows(call, type, size, comm, stream);
  }
}

bool is_direct(const mesh::Call& call) {
  return call.operation == mesh::Operation::send || call.operation == mesh::Operation::receive;
}

// The result is the same on every rank.
bool is_empty(const mesh::Call& call) {
  if (call.operation == mesh::Operation::all_to_all) return false;
  return (!call.in.defined() || call.in.numel() == 0) && (!call.out.defined() || call.out.numel() == 0);
}

ncclUniqueId fresh_id() {
  ncclUniqueId id;
  give(functions().unique_id(&id), "ncclGetUniqueId");
  return id;
}

at::Tensor bytes_of(const ncclUniqueId& id) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof id)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &id, sizeof id);
  return bytes;
}

ncclUniqueId id_of(const at::Tensor& bytes) {
  ncclUniqueId id;
  std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
  return id;
}

}  // namespace

Group::Group(std::string name, int rank, std::vector<int> ranks, std::unique_ptr<Communicator> host,
             int device, std::shared_ptr<Watchdog> watchdog)
    : CheckedCommunicator(std::move(name), rank, static_cast<int>(ranks.size())),
      ranks_(std::move(ranks)),
      host_(std::move(host)),
      device_(device),
      watchdog_(std::move(watchdog)) {
  at::Tensor id = this->rank() == 0 ? bytes_of(fresh_id()) : at::empty({sizeof(ncclUniqueId)}, at::kByte);
  host_->broadcast(id, 0)->wait();
  add(id_of(id), this->rank(), size(), collectives_, ranks_);
}

Group::~Group() {
  watchdog_->remove(collectives_.get());
  for (const auto& [pair, communicator] : transfers_)
    if (communicator) watchdog_->remove(communicator.get());
}

// Connects in the order of the list. All ranks have the same list, so there is no wait cycle.
void Group::connect(std::span<const mesh::TransferPair> transfers) {
  for (const auto& [source, target] : transfers)
    if (source != target && (source == rank() || target == rank())) direct_communicator(source, target);
}

std::unique_ptr<Work> Group::post(mesh::Call call) {
  const at::Tensor& shown = call.in.defined() ? call.in : call.out;
  if (shown.is_cpu()) return call_on_host(*host_, call);
  check_place(call);
  if (is_empty(call)) return std::make_unique<mesh::DoneWork>();
  std::shared_ptr<Event> done = enqueue(call);
  return std::make_unique<DeviceWork>(std::vector{std::move(call)}, device_, std::move(done),
                                      watchdog_->fault());
}

void Group::check_place(const mesh::Call& call) const {
  for (const at::Tensor& tensor : {call.in, call.out})
    if (tensor.defined() && tensor.device() != c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device_)))
      throw Error(ErrorCode::internal, "nccl",
                  std::string(mesh::name_of(call.operation)) + " on " + name() + ": a tensor is on " +
                      tensor.device().str() + ", but this rank's device is cuda:" + std::to_string(device_));
}

std::unique_ptr<Work> Group::gather_each(std::span<const mesh::GatherInto> gathers) {
  std::vector<mesh::Call> calls;
  for (const mesh::GatherInto& gather : gathers) {
    mesh::Call call{.operation = mesh::Operation::all_gather, .out = gather.out, .in = gather.in};
    mesh::check(call, rank(), size(), name());
    check_place(call);
    if (!is_empty(call)) calls.push_back(std::move(call));
  }
  if (calls.empty()) return std::make_unique<mesh::DoneWork>();
  const auto enqueue_all = [&](ncclComm_t comm, cudaStream_t stream) {
    for (const mesh::Call& call : calls)
      enqueue_collective(call, type_of(call, name()), size(), comm, stream);
  };
  std::shared_ptr<Event> done = collectives_->post(mesh::Operation::all_gather, enqueue_all);
  return std::make_unique<DeviceWork>(std::move(calls), device_, std::move(done), watchdog_->fault());
}

std::shared_ptr<Event> Group::enqueue(const mesh::Call& call) {
  const ncclDataType_t type = type_of(call, name());
  if (!is_direct(call))
    return collectives_->post(call.operation, [&](ncclComm_t comm, cudaStream_t stream) {
      enqueue_collective(call, type, size(), comm, stream);
    });
  const bool sends = call.operation == mesh::Operation::send;
  NcclCommunicator& pair =
      sends ? direct_communicator(rank(), call.peer) : direct_communicator(call.peer, rank());
  return pair.post(call.operation, [&](ncclComm_t comm, cudaStream_t stream) {
    if (sends)  // the source is rank 0 of the pair
      give(functions().send(call.in.const_data_ptr(), call.in.numel(), type, 1, comm, stream), "send");
    else
      give(functions().receive(call.out.mutable_data_ptr(), call.out.numel(), type, 0, comm, stream),
           "receive");
  });
}

NcclCommunicator& Group::add(const ncclUniqueId& id, int rank, int size,
                             std::unique_ptr<NcclCommunicator>& place, std::vector<int> members) {
  watchdog_->check_room(name());
  place = std::make_unique<NcclCommunicator>(id, NcclOptions{device_, rank, size, watchdog_->timeout()},
                                             watchdog_->fault());
  watchdog_->add(place.get(), name(), std::move(members));
  return *place;
}

NcclCommunicator& Group::direct_communicator(int source, int target) {
  std::unique_ptr<NcclCommunicator>& place = transfers_[{source, target}];
  if (place) return *place;
  const bool sends = source == rank();
  at::Tensor id = sends ? bytes_of(fresh_id()) : at::empty({sizeof(ncclUniqueId)}, at::kByte);
  (sends ? host_->send(id, target, kIdTag) : host_->receive(id, source, kIdTag))->wait();
  return add(id_of(id), sends ? 0 : 1, 2, place, {ranks_[source], ranks_[target]});
}

}  // namespace heddle::nccl
