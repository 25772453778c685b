// The dry world: runs one rank of a world of any size alone, and records collectives instead of sending them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/ops/compute_log.h"

namespace heddle {

// One recorded collective. bytes: the size of this rank's larger tensor for an all_gather or a
// reduce_scatter, else of the input.
struct DryEntry {
  mesh::Operation operation;
  int64_t bytes;
  std::string group;
  int group_size;
  // Time stamps of this thread's ComputeRecorder when the collective was posted and when its result was
  // waited for, or -1 without a recorder. operator== ignores the members from here on.
  int64_t posted = -1, waited = -1;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int peer = 0;          // the root of a broadcast, the other rank of a send or receive
  bool on_host = false;  // whether its tensors are in CPU memory

  bool operator==(const DryEntry& other) const {
    return operation == other.operation && bytes == other.bytes && group == other.group &&
           group_size == other.group_size;
  }
};

using DryLog = std::vector<DryEntry>;

// A communicator that takes tensors of any device and completes at once. Data of other ranks is zero on the
// CPU, so that no uninitialized memory is read. Sums and maxima return this rank's input.
class HEDDLE_API DryCommunicator : public mesh::CheckedCommunicator {
 public:
  DryCommunicator(std::string name, int rank, int size, std::shared_ptr<DryLog> entries)
      : CheckedCommunicator(std::move(name), rank, size), entries_(std::move(entries)) {}
  ~DryCommunicator() override;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override;

 private:
  std::shared_ptr<DryLog> entries_;
};

// The rendezvous of a dry world.
class HEDDLE_API DryRendezvous : public Rendezvous {
 public:
  // local_world_size: ranks per machine; ranks of a machine are consecutive.
  DryRendezvous(int rank, int world_size, int local_world_size = 8, Log log = {});
  ~DryRendezvous() override;
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_rank() const override { return rank_ % local_world_size_; }
  int local_world_size() const override { return local_world_size_; }
  const Log& log() const override { return log_; }
  // Assumes that all other ranks pass the same text as this rank.
  std::string hold_rendezvous(const std::string& key, const std::string& text, const Answer& answer) override;
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;

  const DryLog& entries() const { return *entries_; }  // collectives of all groups, in the order of the calls
  // Returns the ranks of every created group, by group name.
  const std::map<std::string, std::vector<int>>& groups() const { return groups_; }
  // Makes groups created from now on implement mesh::GathersEach, as groups of a GPU do: one entry per call.
  void gather_as_a_gpu() { gathers_each_ = true; }

  // A scope whose collectives are not added to entries(), and whose operators are not added to a
  // ComputeRecorder.
  class HEDDLE_API Unlisted {
   public:
    explicit Unlisted(DryRendezvous& world) : entries_(world.entries_), kept_(entries_->size()) {}
    ~Unlisted() { entries_->erase(entries_->begin() + static_cast<std::ptrdiff_t>(kept_), entries_->end()); }
    Unlisted(const Unlisted&) = delete;
    Unlisted& operator=(const Unlisted&) = delete;

   private:
    std::shared_ptr<DryLog> entries_;
    size_t kept_;
    ComputePause pause_;
  };

 private:
  int rank_, world_size_, local_world_size_;
  Log log_;
  bool gathers_each_ = false;
  std::map<std::string, std::vector<int>> groups_;
  std::shared_ptr<DryLog> entries_ = std::make_shared<DryLog>();
};

// A dry world whose rank runs steps (Step) on meta tensors, so parameters and activations take no memory and
// have no values. parallel::build() reads no values. It also builds the earlier stages of a pipeline, because
// they determine the shapes that this rank would receive. Batches may be on the CPU.
class HEDDLE_API DryRank : public DryRendezvous {
 public:
  using DryRendezvous::DryRendezvous;
  ~DryRank() override;
  c10::Device device() const override { return at::kMeta; }
};

// Returns null if the mesh is of a real world, or of a dry world that is not a DryRank.
HEDDLE_API DryRank* dry_rank(const DeviceMesh& mesh);

}  // namespace heddle
