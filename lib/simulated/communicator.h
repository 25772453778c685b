// Collectives of simulated GPUs: on streams of their own, ordered by events as those of the plugin nccl.
#pragma once

#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/mesh/call.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::simulated {

enum class Mistake {
  none,
  compute_not_awaited,  // the collective does not wait for the work that was queued before it
  wait_dropped,         // Work::wait() does not make the stream wait
  event_not_recorded,   // the event of the end is older than the collective
  wrong_stream,         // the collective runs on a stream that its events do not order
  tensors_let_go,       // its tensors are not held until the wait, nor is their memory
};

// The `nth` call of `operation` on rank 0 makes it; {} for none.
struct Seeded {
  Mistake mistake = Mistake::none;
  std::string operation;
  int nth = 0;
};

void set_mistake(const Seeded& seeded);
// Counts a call of rank 0; the mistake that it makes.
Mistake next_mistake(int rank, const std::string& operation);

struct SharedGroup;  // of the ranks' communicators
struct SharedCall;

// Tensors of the CPU go through the host's group. A group has one stream for its collectives and one for each
// pair and direction; sums are taken in rank order, so results have the bits of the CPU's communicators.
class Group : public mesh::CheckedCommunicator, public mesh::GathersEach {
 public:
  // host: the same group on the CPU. Throws Error{mesh} unless all ranks are threads of this process.
  Group(std::string name, int rank, int size, std::unique_ptr<Communicator> host, int device, int world_rank);
  ~Group() override;
  std::unique_ptr<Work> gather_each(std::span<const mesh::GatherInto> gathers) override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  std::unique_ptr<Work> post_on_host(const mesh::Call& call);
  std::unique_ptr<Work> post_on_device(const mesh::Call& call);
  // Adds this rank's arguments to the next call of a channel, at `place`, and returns those of all ranks.
  std::shared_ptr<SharedCall> share(const mesh::Call& call, std::pair<int, int> channel, size_t place);

  const std::unique_ptr<Communicator> host_;
  const int device_, world_rank_;
  const std::shared_ptr<SharedGroup> shared_;
  std::map<std::pair<int, int>, c10::Stream> streams_;  // by source and target; (-1, -1): collectives
  std::map<std::pair<int, int>, uint64_t> posted_;      // how many calls so far
};

// The host's rendezvous, with groups of simulated GPUs.
class DeviceRendezvous : public WrappedRendezvous {
 public:
  DeviceRendezvous(Rendezvous& host, int device) : WrappedRendezvous(host), device_(device) {}
  c10::Device device() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;
  void abandon(const std::string& why) override;

 private:
  const int device_;
};

}  // namespace heddle::simulated
