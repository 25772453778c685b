// The dry world: any rank of a world of any size, alone. Nothing is sent; every collective is listed.
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

// One recorded collective. bytes: this rank's tensor (the whole one of an all_gather and a reduce_scatter,
// else the input).
struct DryEntry {
  mesh::Operation operation;
  int64_t bytes;
  std::string group;
  int group_size;
  // Moments of this thread's ComputeRecorder, -1 without one: when it was called, and when its result was
  // waited for. Two entries that differ in the following alone are equal.
  int64_t posted = -1, waited = -1;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int peer = 0;          // the root of a broadcast, the other side of a send or receive
  bool on_host = false;  // its tensors are in the memory of the CPU

  bool operator==(const DryEntry& other) const {
    return operation == other.operation && bytes == other.bytes && group == other.group &&
           group_size == other.group_size;
  }
};

using DryLog = std::vector<DryEntry>;

// Takes tensors of any device; its Works are done. What other ranks would write is zero in the CPU's memory,
// so that nobody reads memory that was never written; sums and maxima keep what this rank gave.
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

class HEDDLE_API DryRendezvous : public Rendezvous {
 public:
  // local_world_size: the ranks of one machine, which holds consecutive ranks.
  DryRendezvous(int rank, int world_size, int local_world_size = 8, Log log = {});
  ~DryRendezvous() override;
  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  int local_rank() const override { return rank_ % local_world_size_; }
  int local_world_size() const override { return local_world_size_; }
  const Log& log() const override { return log_; }
  // The other ranks are assumed to give this rank's text.
  std::string hold_rendezvous(const std::string& key, const std::string& text, const Answer& answer) override;
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override;

  const DryLog& entries() const { return *entries_; }  // of all groups, in the order of the calls
  // The ranks of every group that was made, by its name.
  const std::map<std::string, std::vector<int>>& groups() const { return groups_; }
  // Groups made from now on are mesh::GathersEach, as those of a GPU: one entry for each call.
  void gather_as_a_gpu() { gathers_each_ = true; }

  // What is called while it lives is left out of entries(), and what is computed out of a ComputeRecorder.
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

// A dry world whose rank takes steps (Step) on meta tensors: parameters and activations take no memory and
// have no values. parallel::build reads no values, and makes the pipeline's earlier stages as well: only they
// tell the shapes of what this rank would receive. Batches may lie on the CPU.
class HEDDLE_API DryRank : public DryRendezvous {
 public:
  using DryRendezvous::DryRendezvous;
  ~DryRank() override;
  c10::Device device() const override { return at::kMeta; }
};

// Null: the mesh is of a real world, or of a dry one that takes no steps.
HEDDLE_API DryRank* dry_rank(const DeviceMesh& mesh);

}  // namespace heddle
