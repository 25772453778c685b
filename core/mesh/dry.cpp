// Records collectives instead of performing them.
#include "core/mesh/dry.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle {

DryCommunicator::~DryCommunicator() = default;
DryRendezvous::~DryRendezvous() = default;

std::unique_ptr<Work> DryCommunicator::post(mesh::Call call) {
  const bool gathers =
      call.operation == mesh::Operation::all_gather || call.operation == mesh::Operation::receive;
  const at::Tensor& whole = gathers ? call.out : call.in;
  const auto bytes = static_cast<int64_t>(whole.numel() * whole.element_size());
  entries_->push_back({call.operation, bytes, name(), size()});
  return std::make_unique<mesh::DoneWork>();
}

DryRendezvous::DryRendezvous(int rank, int world_size, int local_world_size, Log log)
    : rank_(rank),
      world_size_(world_size),
      local_world_size_(std::min(local_world_size, world_size)),
      log_(std::move(log)) {}

std::string DryRendezvous::hold_meeting(const std::string&, const std::string& text, const Answer& answer) {
  const auto answers = answer(std::vector<std::string>(static_cast<size_t>(world_size_), text));
  return answers.size() == 1 ? answers[0] : answers[static_cast<size_t>(rank_)];
}

std::unique_ptr<Communicator> DryRendezvous::group(const std::string& name, std::span<const int> ranks) {
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  return std::make_unique<DryCommunicator>(name, place, static_cast<int>(ranks.size()), entries_);
}

}  // namespace heddle
