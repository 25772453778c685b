// Listing collectives instead of doing them.
#include "heddle/mesh/dry.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle {
namespace {

// In place of what the others would send. An all_gather's input may be a part of its output.
void fill_what_arrives(const mesh::Call& call, int rank, int size) {
  using mesh::Operation;
  const bool arrives = call.operation == Operation::all_gather || call.operation == Operation::receive ||
                       call.operation == Operation::reduce_scatter || call.operation == Operation::all_to_all;
  if (!arrives || !call.out.is_cpu() || call.out.nbytes() == 0) return;
  char* const out = static_cast<char*>(call.out.mutable_data_ptr());
  if (call.operation != Operation::all_gather) return void(std::memset(out, 0, call.out.nbytes()));
  const size_t part = call.in.nbytes();
  std::memmove(out + part * rank, call.in.const_data_ptr(), part);
  std::memset(out, 0, part * rank);
  std::memset(out + part * (rank + 1), 0, part * (size - rank - 1));
}

// A collective that is done. Its wait() is recorded.
class DryWork final : public mesh::DoneWork {
 public:
  DryWork(std::shared_ptr<DryLog> entries, size_t place) : entries_(std::move(entries)), place_(place) {}
  void wait() override {
    if (place_ < entries_->size()) (*entries_)[place_].waited = record_moment();
  }

 private:
  const std::shared_ptr<DryLog> entries_;
  const size_t place_;
};

std::unique_ptr<Work> listed(const std::shared_ptr<DryLog>& entries, DryEntry entry) {
  entry.posted = record_moment();
  entries->push_back(std::move(entry));
  return std::make_unique<DryWork>(entries, entries->size() - 1);
}

// A group of a GPU's ranks, which gathers several tensors in one call.
class DryDeviceGroup final : public DryCommunicator, public mesh::GathersEach {
 public:
  DryDeviceGroup(const std::string& name, int rank, int size, std::shared_ptr<DryLog> entries)
      : DryCommunicator(name, rank, size, entries), entries_(std::move(entries)) {}
  std::unique_ptr<Work> gather_each(std::span<const mesh::GatherInto> gathers) override {
    DryEntry entry{mesh::Operation::all_gather, 0, name(), size()};
    for (const mesh::GatherInto& gather : gathers) {
      const mesh::Call call{.operation = mesh::Operation::all_gather, .out = gather.out, .in = gather.in};
      mesh::check(call, rank(), size(), name());
      entry.bytes += static_cast<int64_t>(gather.out.nbytes());
      entry.dtype = gather.out.scalar_type();
      fill_what_arrives(call, rank(), size());
    }
    return listed(entries_, std::move(entry));
  }

 private:
  std::shared_ptr<DryLog> entries_;
};

}  // namespace

DryCommunicator::~DryCommunicator() = default;
DryRendezvous::~DryRendezvous() = default;
DryRank::~DryRank() = default;

DryRank* dry_rank(const DeviceMesh& mesh) {
  return dynamic_cast<DryRank*>(&mesh.rendezvous());
}

std::unique_ptr<Work> DryCommunicator::post(mesh::Call call) {
  const bool gathers =
      call.operation == mesh::Operation::all_gather || call.operation == mesh::Operation::receive;
  const at::Tensor& whole = gathers ? call.out : call.in;
  const auto bytes = static_cast<int64_t>(whole.numel() * whole.element_size());
  fill_what_arrives(call, rank(), size());
  return listed(entries_, {.operation = call.operation,
                           .bytes = bytes,
                           .group = name(),
                           .group_size = size(),
                           .dtype = whole.scalar_type(),
                           .peer = call.peer,
                           .on_host = whole.is_cpu()});
}

DryRendezvous::DryRendezvous(int rank, int world_size, int local_world_size, Log log)
    : rank_(rank),
      world_size_(world_size),
      local_world_size_(std::min(local_world_size, world_size)),
      log_(std::move(log)) {}

std::string DryRendezvous::hold_rendezvous(const std::string&, const std::string& text,
                                           const Answer& answer) {
  const auto answers = answer(std::vector<std::string>(static_cast<size_t>(world_size_), text));
  return answers.size() == 1 ? answers[0] : answers[static_cast<size_t>(rank_)];
}

std::unique_ptr<Communicator> DryRendezvous::group(const std::string& name, std::span<const int> ranks) {
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  const auto size = static_cast<int>(ranks.size());
  groups_[name].assign(ranks.begin(), ranks.end());
  if (gathers_each_) return std::make_unique<DryDeviceGroup>(name, place, size, entries_);
  return std::make_unique<DryCommunicator>(name, place, size, entries_);
}

}  // namespace heddle
