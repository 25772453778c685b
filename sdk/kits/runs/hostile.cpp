// Runs each call on copies. The caller's tensors get the results in wait().
#include "hostile.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "../watch.h"
#include "heddle/mesh/call.h"
#include "late_work.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

// Tags of the inner communicator: tensors, the senders' tags, and both directions of a rendezvous of two
// ranks.
enum Channel { kTensors, kTags, kMeets, kAnswers };

class LateCommunicator : public Communicator, public mesh::ConnectsAhead {
 public:
  LateCommunicator(std::unique_ptr<Communicator> inner, std::vector<int> ranks, std::string key,
                   std::shared_ptr<WorkFaults> faults)
      : inner_(std::move(inner)),
        ranks_(std::move(ranks)),
        key_(std::move(key)),
        faults_(std::move(faults)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) override {
    CallTensors tensors = both(out, in);
    if (is_own_part(out, in)) tensors = {in, copy_of(in), out, tensors.late, true};
    return posted("all_gather", inner_->all_gather(tensors.late, copy_of(in)), tensors);
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) override {
    const CallTensors tensors = both(out, in);
    return posted("reduce_scatter", inner_->reduce_scatter(tensors.late, copy_of(in), reduce), tensors);
  }
  std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce) override {
    const CallTensors tensors{{}, {}, inout, copy_of(inout)};
    return posted("all_reduce", inner_->all_reduce(tensors.late, reduce), tensors);
  }
  std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                   std::span<const int64_t> in_rows) override {
    const CallTensors tensors = both(out, in);
    return posted("all_to_all", inner_->all_to_all(tensors.late, copy_of(in), out_rows, in_rows), tensors);
  }
  std::unique_ptr<Work> broadcast(at::Tensor inout, int root) override {
    const at::Tensor late = copy_of(inout);
    auto work = inner_->broadcast(late, root);
    const bool reads = root == rank();  // the root may read its tensor meanwhile, like an input
    const CallTensors tensors = reads ? CallTensors{inout, late, {}, {}} : CallTensors{{}, {}, inout, late};
    return posted("broadcast", std::move(work), tensors);
  }
  std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) override {
    const CallTensors tensors{tensor, copy_of(tensor), {}, {}};
    if (!is_allowed(peer, tag)) return inner_->send(tensor, peer, tag);
    meet(rank(), peer);
    auto work = inner_->send(copy_of(tensor), peer, kTensors);
    return posted("send", std::move(work), tensors, tag_of(peer, tag, false));
  }
  std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) override {
    const CallTensors tensors{{}, {}, tensor, room_like(tensor)};
    if (!is_allowed(peer, tag)) return inner_->receive(tensor, peer, tag);
    meet(peer, rank());
    auto work = inner_->receive(tensors.late, peer, kTensors);
    return posted("receive", std::move(work), tensors, tag_of(peer, tag, true));
  }
  void connect(std::span<const mesh::TransferPair> transfers) override {
    mesh::connect(*inner_, transfers);
    for (const auto& [source, target] : transfers)
      if (source != target && (source == rank() || target == rank())) meet(source, target);
  }

 private:
  // Returns the tensors of a call. If the output overlaps the input, the caller may change neither, so `in`
  // is undefined.
  static CallTensors both(const at::Tensor& out, const at::Tensor& in) {
    const bool overlap = in.defined() && out.defined() && in.storage().is_alias_of(out.storage());
    CallTensors tensors{overlap ? at::Tensor() : in, {}, out, room_like(out)};
    if (!overlap) tensors.sent = copy_of(in);
    return tensors;
  }
  // Returns whether `in` is this rank's part of `out`. An in-place gather only reads it, so the caller may
  // also read it.
  bool is_own_part(const at::Tensor& out, const at::Tensor& in) const {
    if (!in.defined() || !out.defined() || !in.is_contiguous() || !out.is_contiguous()) return false;
    return in.numel() > 0 && in.is_alias_of(out) && in.scalar_type() == out.scalar_type() &&
           in.storage_offset() == out.storage_offset() + rank() * in.numel();
  }
  std::unique_ptr<Work> posted(const char* call, std::unique_ptr<Work> work, const CallTensors& tensors,
                               Tag tag = {}) {
    return std::make_unique<LateWork>(std::move(work), tensors, std::move(tag),
                                      std::string(call) + " on " + name(), faults_);
  }
  // Returns whether the inner communicator accepts the call. It refuses other calls with its own message.
  bool is_allowed(int peer, int tag) const {
    return peer >= 0 && peer < size() && peer != rank() && tag >= 0;
  }
  Tag tag_of(int peer, int tag, bool receives) {
    Tag made{nullptr, at::empty({1}, at::kLong), tag, receives};
    *made.number.mutable_data_ptr<int64_t>() = tag;
    made.work = receives ? inner_->receive(made.number, peer, kTags) : inner_->send(made.number, peer, kTags);
    return made;
  }

  // Returns when both ranks have reached their first transfer in this direction.
  void meet(int source, int target) {
    if (!std::exchange(met_[{source, target}], true)) return meet_first(source, target);
  }
  void meet_first(int source, int target) {
    const bool sends = source == rank();
    const int peer = sends ? target : source;
    const std::string at = std::to_string(ranks_[peer]) + " on " + name();
    faults_->deadlocks().begin({ranks_[rank()], ranks_[peer],
                                key_ + std::to_string(source) + ">" + std::to_string(target),
                                (sends ? "send to rank " : "receive from rank ") + at});
    const at::Tensor mine = at::empty({1}, at::kByte), its = at::empty({1}, at::kByte);
    *mine.mutable_data_ptr<uint8_t>() = 0;
    const auto sent = inner_->send(mine, peer, sends ? kMeets : kAnswers);
    const auto come = inner_->receive(its, peer, sends ? kAnswers : kMeets);
    const Watch::Waiting waiting;
    sent->wait();
    come->wait();
  }

  std::unique_ptr<Communicator> inner_;
  const std::vector<int> ranks_;  // global ranks
  const std::string key_;         // equal on all ranks of a group, different between groups
  std::shared_ptr<WorkFaults> faults_;
  std::map<std::pair<int, int>, bool> met_;  // by source and target
};

}  // namespace

void WorkFaults::add(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  if (first_.empty()) first_ = fault;
}

void WorkFaults::check() const {
  const std::lock_guard lock(mutex_);
  if (!first_.empty())
    found(first_ +
          " (heddle/mesh/communicator.h: wait() once, before the tensors are read or written again)");
}

std::unique_ptr<Communicator> LateRendezvous::group(const std::string& name, std::span<const int> ranks) {
  std::vector<int> members(ranks.begin(), ranks.end());
  const int place = made_[members]++;
  auto inner = this->inner().group(name, ranks);
  std::string key = mesh::list_ranks(members) + " #" + std::to_string(place) + " ";
  return std::make_unique<LateCommunicator>(std::move(inner), std::move(members), std::move(key), faults_);
}

}  // namespace heddle::kits
