// A call is a meeting of the ranks' streams: it runs once, when all have come.
#include "lib/simulated/communicator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <tuple>

#include "lib/simulated/alias.h"

namespace heddle::simulated {

using Channel = std::pair<int, int>;

// The arguments of all ranks to one call, in the order of the ranks. A transfer has the sender's, then the
// receiver's.
struct SharedCall {
  std::vector<mesh::Call> calls;
  size_t posted = 0;
  std::shared_ptr<Meeting> meeting;
};

struct SharedGroup {
  std::mutex mutex;
  std::map<std::pair<Channel, uint64_t>, std::shared_ptr<SharedCall>> calls;
};

namespace {

constexpr Channel kCollectives{-1, -1};

std::mutex seeding;
Seeded seeded;
int seen = 0;

bool is_direct(const mesh::Call& call) {
  return call.operation == mesh::Operation::send || call.operation == mesh::Operation::receive;
}

// The root of a broadcast reads its tensor only.
bool writes_out(const mesh::Call& call, int rank) {
  return call.operation != mesh::Operation::broadcast || call.peer != rank;
}

void perform(std::vector<mesh::Call>& calls, bool direct) {
  const BelowAll below;
  if (!direct) {
    for (const mesh::Call& call : calls)
      if (call.describe() != calls[0].describe())
        throw Error(ErrorCode::internal, "simulated",
                    "ranks call different collectives: " + calls[0].describe() + ", " + call.describe());
    return mesh::carry_out(calls);
  }
  if (calls[0].in.numel() != calls[1].out.numel() || calls[0].in.scalar_type() != calls[1].out.scalar_type())
    throw Error(ErrorCode::internal, "simulated",
                "a " + calls[0].describe() + " meets a " + calls[1].describe());
  if (calls[0].tag != calls[1].tag)
    throw Error(ErrorCode::internal, "simulated",
                "a receive with tag " + std::to_string(calls[1].tag) + " meets the send with tag " +
                    std::to_string(calls[0].tag) +
                    ": a device has no tags, transfers of a pair are in one order");
  const mesh::Call copy{.operation = mesh::Operation::all_gather, .out = calls[1].out, .in = calls[0].in};
  mesh::carry_out({&copy, 1});
}

// The group of all ranks, made by the first of them.
std::shared_ptr<SharedGroup> shared_by(Communicator& host) {
  static std::mutex mutex;
  static std::map<int64_t, std::weak_ptr<SharedGroup>> all;
  static int64_t next = 0;
  std::shared_ptr<SharedGroup> group;
  at::Tensor number = at::empty({1}, at::kLong);
  if (host.rank() == 0) {
    const std::lock_guard lock(mutex);
    group = std::make_shared<SharedGroup>();
    all[next] = group;
    *number.mutable_data_ptr<int64_t>() = next++;
  }
  host.broadcast(number, 0)->wait();
  {
    const std::lock_guard lock(mutex);
    if (const auto found = all.find(*number.const_data_ptr<int64_t>()); found != all.end())
      group = found->second.lock();
  }
  at::Tensor all_have = at::empty({1}, at::kLong);
  *all_have.mutable_data_ptr<int64_t>() = group ? 0 : 1;
  host.all_reduce(all_have)->wait();  // the first one keeps it alive until then
  if (*all_have.const_data_ptr<int64_t>() != 0)
    throw Error(ErrorCode::mesh, "simulated", "the ranks of simulated GPUs are threads of one process",
                "start one rank a process, or use the tests' worlds of threads");
  return group;
}

// Its tensors live until the current stream is told to wait for it.
class DeviceWork : public Work {
 public:
  DeviceWork(mesh::Call call, Point done, int device, bool waits)
      : call_(std::move(call)), done_(std::move(done)), device_(device), waits_(waits) {}
  ~DeviceWork() override { block(); }
  void wait() override {
    block();
    call_ = {};
  }
  bool done() const override { return Machine::get().passed(done_); }

 private:
  void block() {
    if (std::exchange(waits_, false)) Machine::get().wait(current_index(device_), done_);
  }
  mesh::Call call_;
  Point done_;
  int device_;
  bool waits_;
};

class EachWork : public Work {
 public:
  explicit EachWork(std::vector<std::unique_ptr<Work>> works) : works_(std::move(works)) {}
  void wait() override {
    for (const auto& work : works_) work->wait();
  }

 private:
  std::vector<std::unique_ptr<Work>> works_;
};

}  // namespace

void set_mistake(const Seeded& now) {
  const std::lock_guard lock(seeding);
  seeded = now;
  seen = 0;
}

Mistake next_mistake(int rank, const std::string& operation) {
  const std::lock_guard lock(seeding);
  if (rank != 0 || seeded.mistake == Mistake::none || operation != seeded.operation) return Mistake::none;
  return seen++ == seeded.nth ? seeded.mistake : Mistake::none;
}

Group::Group(std::string name, int rank, int size, std::unique_ptr<Communicator> host, int device,
             int world_rank)
    : CheckedCommunicator(std::move(name), rank, size),
      host_(std::move(host)),
      device_(device),
      world_rank_(world_rank),
      shared_(shared_by(*host_)) {}

Group::~Group() = default;

std::unique_ptr<Work> Group::post(mesh::Call call) {
  const at::Tensor& shown = call.in.defined() ? call.in : call.out;
  if (shown.is_cpu()) return post_on_host(call);
  for (const at::Tensor& tensor : {call.in, call.out})
    if (tensor.defined() && (!tensor.is_cuda() || tensor.get_device() != device_))
      throw Error(ErrorCode::internal, "simulated",
                  std::string(mesh::name_of(call.operation)) + " on " + name() + ": a tensor is on " +
                      tensor.device().str() + ", this rank's device is cuda:" + std::to_string(device_));
  return post_on_device(call);
}

std::unique_ptr<Work> Group::gather_each(std::span<const mesh::GatherInto> gathers) {
  std::vector<std::unique_ptr<Work>> works;
  for (const mesh::GatherInto& gather : gathers) works.push_back(all_gather(gather.out, gather.in));
  return std::make_unique<EachWork>(std::move(works));
}

std::shared_ptr<SharedCall> Group::share(const mesh::Call& call, std::pair<int, int> channel, size_t place) {
  const bool direct = is_direct(call);
  const std::lock_guard lock(shared_->mutex);
  const std::pair key{channel, posted_[channel]++};
  std::shared_ptr<SharedCall>& found = shared_->calls[key];
  if (!found) {
    found = std::make_shared<SharedCall>();
    found->calls.resize(direct ? 2 : static_cast<size_t>(size()));
    found->meeting = std::make_shared<Meeting>();
    found->meeting->expected = found->calls.size();
    found->meeting->run = [calls = std::weak_ptr(found), direct] { perform(calls.lock()->calls, direct); };
  }
  std::shared_ptr<SharedCall> shared = found;
  shared->calls[place] = call;
  shared->calls[place].in = kernel_alias(call.in);
  shared->calls[place].out = kernel_alias(call.out);
  if (++shared->posted == shared->calls.size()) shared_->calls.erase(key);
  return shared;
}

std::unique_ptr<Work> Group::post_on_device(const mesh::Call& call) {
  const bool direct = is_direct(call), sends = call.operation == mesh::Operation::send;
  const Channel channel = !direct ? kCollectives
                          : sends ? Channel{rank(), call.peer}
                                  : Channel{call.peer, rank()};
  const c10::Stream own = streams_.try_emplace(channel, stream_of_pool(device_)).first->second;
  const size_t place = direct ? (sends ? 0 : 1) : static_cast<size_t>(rank());
  const std::shared_ptr<SharedCall> shared = share(call, channel, place);
  const std::string operation = mesh::name_of(call.operation);
  const Mistake mistake = next_mistake(world_rank_, operation);
  Machine& machine = Machine::get();
  const int proper = index_of(own);
  const int stream = mistake == Mistake::wrong_stream ? index_of(stream_of_pool(device_)) : proper;
  if (mistake != Mistake::compute_not_awaited) machine.wait(proper, machine.record(current_index(device_)));
  Point done = machine.record(proper);
  std::vector<Range> ranges;
  if (call.in.defined()) ranges.push_back(range_of(call.in, false));
  if (call.out.defined()) ranges.push_back(range_of(call.out, writes_out(call, rank())));
  // The task keeps what the meeting reads.
  machine.launch(stream, {operation + " on " + name(), [shared] {}, {}, shared->meeting}, ranges);
  if (mistake != Mistake::event_not_recorded) done = machine.record(proper);
  return std::make_unique<DeviceWork>(mistake == Mistake::tensors_let_go ? mesh::Call{} : call,
                                      std::move(done), device_, mistake != Mistake::wait_dropped);
}

std::unique_ptr<Work> Group::post_on_host(const mesh::Call& call) {
  switch (call.operation) {
    case mesh::Operation::all_gather:
      return host_->all_gather(call.out, call.in);
    case mesh::Operation::reduce_scatter:
      return host_->reduce_scatter(call.out, call.in, call.reduce);
    case mesh::Operation::all_reduce:
      return host_->all_reduce(call.out, call.reduce);
    case mesh::Operation::all_to_all:
      return host_->all_to_all(call.out, call.in, call.out_rows, call.in_rows);
    case mesh::Operation::broadcast:
      return host_->broadcast(call.out, call.peer);
    case mesh::Operation::send:
      return host_->send(call.in, call.peer, call.tag);
    default:
      return host_->receive(call.out, call.peer, call.tag);
  }
}

void DeviceRendezvous::abandon(const std::string& why) {
  Machine::get().abandon(why);
  inner().abandon(why);
}

std::unique_ptr<Communicator> DeviceRendezvous::group(const std::string& name, std::span<const int> ranks) {
  if (ranks.size() == 1) return std::make_unique<AloneCommunicator>(name);
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  return std::make_unique<Group>(name, place, static_cast<int>(ranks.size()), inner().group(name, ranks),
                                 device_, rank());
}

}  // namespace heddle::simulated
