// Collectives and transfers of the fake NCCL. A collective synchronizes the streams of its ranks, a transfer
// those of two ranks.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "lib/simulated/alias.h"
#include "simulated/nccl/fake_comm.h"

namespace heddle::simulated {
namespace {

using Operation = mesh::Operation;

// An NCCL call between ncclGroupStart() and ncclGroupEnd().
struct PostedCall {
  ncclComm_t comm;
  cudaStream_t stream;
  mesh::Call call;
  std::vector<Range> ranges;
};

thread_local std::vector<PostedCall> asked;

constexpr int kCtas = 32;  // maximum per NCCL kernel

at::ScalarType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return at::kFloat;
    case ncclFloat64:
      return at::kDouble;
    case ncclBfloat16:
      return at::kBFloat16;
    case ncclFloat16:
      return at::kHalf;
    case ncclInt64:
      return at::kLong;
    case ncclInt32:
      return at::kInt;
    case ncclInt8:
      return at::kChar;
    default:
      return at::kByte;
  }
}

Reduce reduce_of(ncclRedOp_t operation) {
  return operation == ncclSum ? Reduce::sum : operation == ncclMax ? Reduce::max : Reduce::average;
}

// Returns device memory as a kernel sees it.
at::Tensor seen(const void* address, size_t count, ncclDataType_t type) {
  return at::from_blob(Machine::get().kernel_bytes(address), {static_cast<int64_t>(count)},
                       at::TensorOptions(dtype_of(type)));
}

Range range(const void* address, size_t count, ncclDataType_t type, bool writes) {
  const auto* begin = static_cast<const std::byte*>(address);
  return {begin, begin + count * at::elementSize(dtype_of(type)), writes};
}

void perform(Together& of) {
  const BelowAll below;
  if (!of.is_transfer) {
    for (const mesh::Call& call : of.calls)
      if (call.describe() != of.calls[0].describe())
        throw Error(ErrorCode::internal, "nccl",
                    "ranks call different collectives: " + of.calls[0].describe() + ", " + call.describe());
    return mesh::carry_out(of.calls);
  }
  if (of.calls[0].in.numel() != of.calls[1].out.numel())
    throw Error(ErrorCode::internal, "nccl",
                "a " + of.calls[0].describe() + " meets a " + of.calls[1].describe());
  of.calls[1].out.copy_(of.calls[0].in);
}

// Returns the state of a communicator's next collective or transfer, created by the first rank that posts it.
std::shared_ptr<Together> together(ncclComm& comm, const mesh::Call& call) {
  const bool sends = call.operation == Operation::send,
             direct = sends || call.operation == Operation::receive;
  const int source = !direct ? -1 : sends ? comm.rank : call.peer;
  const int target = !direct ? -1 : sends ? call.peer : comm.rank;
  // A transfer to itself has both sides on this rank.
  const int side = direct && source == target ? (sends ? -2 : -3) : target;
  const std::lock_guard lock(world().mutex);
  std::shared_ptr<Together>& found = comm.shared->calls[{source, target, comm.posted[{source, side}]++}];
  if (!found) {
    found = std::make_shared<Together>();
    found->is_transfer = direct;
    found->calls.resize(direct ? 2 : static_cast<size_t>(comm.shared->size));
    found->meeting = std::make_shared<Meeting>();
    found->meeting->expected = found->calls.size();
    found->meeting->run = [of = std::weak_ptr(found)] { perform(*of.lock()); };
  }
  found->calls[direct ? (sends ? 0 : 1) : static_cast<size_t>(comm.rank)] = call;
  return found;
}

// Buffers a send that is grouped with other calls. The calls of a group run at once, so the send must not
// wait for its receiver.
void put_aside(const PostedCall& one, const std::shared_ptr<Together>& of, const std::string& name) {
  const at::Tensor from = one.call.in;
  of->calls[0].in = at::empty(from.sizes(), from.options());
  const int stream = index_in(one.stream);
  Machine::get().launch(stream,
                        {name,
                         [from, to = of->calls[0].in] {
                           const BelowAll below;
                           to.copy_(from);
                         },
                         {},
                         nullptr},
                        one.ranges);
  Machine::get().post(*of->meeting, Machine::get().record(stream));
}

void launch(const PostedCall& one, bool alone) {
  const std::shared_ptr<Together> of = together(*one.comm, one.call);
  const std::string name = std::string("nccl ") + mesh::name_of(one.call.operation);
  if (one.call.operation == Operation::send && !alone) return put_aside(one, of, name);
  Task task{name, [of] {}, {}, of->meeting};
  task.ctas = kCtas;
  Machine::get().launch(index_in(one.stream), std::move(task), one.ranges);
}

// Returns whether NCCL may move the call in packs of 16 bytes: large calls need every tensor, and every
// rank's part, aligned to 16 bytes.
bool is_aligned(const mesh::Call& call, const std::vector<Range>& ranges) {
  constexpr size_t kPack = 16;
  size_t whole = 0, part = SIZE_MAX;
  bool aligned = true;
  for (const Range& one : ranges) {
    const auto bytes = static_cast<size_t>(one.end - one.begin);
    whole = std::max(whole, bytes);
    part = std::min(part, bytes);
    aligned = aligned && reinterpret_cast<uintptr_t>(one.begin) % kPack == 0;
  }
  const bool has_parts =
      call.operation == Operation::all_gather || call.operation == Operation::reduce_scatter;
  return whole < world().large || (aligned && (!has_parts || part % kPack == 0));
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, mesh::Call call, std::vector<Range> ranges) {
  if (!is_aligned(call, ranges)) return ncclInvalidArgument;
  asked.push_back({comm, stream, std::move(call), std::move(ranges)});
  return ncclSuccess;
}

bool is_transfer(const mesh::Call& call) {
  return call.operation == Operation::send || call.operation == Operation::receive;
}

// Marks the host as inside an NCCL call, which fails if the communicator is aborted or revoked.
class Inside {
 public:
  Inside(ncclComm& comm, std::unique_lock<std::mutex>& lock) : comm_(comm), lock_(lock) { ++comm_.inside; }
  ~Inside() {
    if (comm_.revoked) {
      lock_.unlock();
      std::this_thread::sleep_for(world().lingers);
      lock_.lock();
    }
    --comm_.inside;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  // Returns false if the communicator was aborted or revoked.
  bool wait_for(const std::function<bool()>& condition) {
    const uint64_t era = world().era;
    world().changed.wait(lock_,
                         [&] { return condition() || comm_.aborted || comm_.revoked || world().era != era; });
    return !comm_.aborted && !comm_.revoked && world().era == era;
  }

 private:
  ncclComm& comm_;
  std::unique_lock<std::mutex>& lock_;
};

// Returns the connection that the call needs: (-1, -1) for a collective, (source, target) for a transfer.
std::pair<int, int> edge_of(const PostedCall& one) {
  if (!is_transfer(one.call)) return {-1, -1};
  return one.call.operation == Operation::send ? std::pair(one.comm->rank, one.call.peer)
                                               : std::pair(one.call.peer, one.comm->rank);
}

// Blocks the host until the other ranks of each first call have posted it too. All calls belong to one
// communicator.
bool connect(const std::vector<PostedCall>& all, Inside& inside) {
  for (const PostedCall& one : all) one.comm->shared->connected[edge_of(one)].insert(one.comm->rank);
  world().changed.notify_all();
  return inside.wait_for([&] {
    return std::all_of(all.begin(), all.end(), [](const PostedCall& one) {
      const auto edge = edge_of(one);
      const int ranks = !is_transfer(one.call) ? one.comm->shared->size : edge.first == edge.second ? 1 : 2;
      return static_cast<int>(one.comm->shared->connected[edge].size()) >= ranks;
    });
  });
}

ncclResult_t group_end() {
  const std::vector<PostedCall> all = std::exchange(asked, {});
  if (all.empty()) return ncclSuccess;
  {
    std::unique_lock lock(world().mutex);
    Inside inside(*all.front().comm, lock);
    ++world().held;
    const bool let_through = inside.wait_for([] { return !world().holds; });
    --world().held;
    if (!let_through || !connect(all, inside)) return ncclInternalError;
  }
  for (const bool sends : {true, false})  // sends first, because no send waits
    for (const PostedCall& one : all)
      if ((one.call.operation == Operation::send) == sends) launch(one, all.size() == 1);
  return ncclSuccess;
}

ncclResult_t all_gather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream) {
  const size_t all = count * static_cast<size_t>(comm->shared->size);
  return add(comm, stream,
             {.operation = Operation::all_gather, .out = seen(out, all, type), .in = seen(in, count, type)},
             {range(in, count, type, false), range(out, all, type, true)});
}

ncclResult_t reduce_scatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t by,
                            ncclComm_t comm, cudaStream_t stream) {
  const size_t all = count * static_cast<size_t>(comm->shared->size);
  return add(comm, stream,
             {.operation = Operation::reduce_scatter,
              .out = seen(out, count, type),
              .in = seen(in, all, type),
              .reduce = reduce_of(by)},
             {range(in, all, type, false), range(out, count, type, true)});
}

ncclResult_t all_reduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t by,
                        ncclComm_t comm, cudaStream_t stream) {
  const at::Tensor both = seen(out, count, type);
  return add(comm, stream,
             {.operation = Operation::all_reduce, .out = both, .in = both, .reduce = reduce_of(by)},
             {range(in, count, type, false), range(out, count, type, true)});
}

ncclResult_t broadcast(const void*, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  const at::Tensor both = seen(out, count, type);
  return add(comm, stream, {.operation = Operation::broadcast, .out = both, .in = both, .peer = root},
             {range(out, count, type, comm->rank != root)});
}

ncclResult_t send(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return add(comm, stream, {.operation = Operation::send, .in = seen(in, count, type), .peer = peer},
             {range(in, count, type, false)});
}

ncclResult_t receive(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return add(comm, stream, {.operation = Operation::receive, .out = seen(out, count, type), .peer = peer},
             {range(out, count, type, true)});
}

}  // namespace

void add_calls(nccl::Functions& table) {
  table.group_start = [] { return ncclSuccess; };
  table.group_end = group_end;
  table.all_gather = all_gather;
  table.reduce_scatter = reduce_scatter;
  table.all_reduce = all_reduce;
  table.broadcast = broadcast;
  table.send = send;
  table.receive = receive;
}

}  // namespace heddle::simulated
