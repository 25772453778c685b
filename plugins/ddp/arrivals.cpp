// Counts expected and received gradients per parameter.
#include "arrivals.h"

#include <algorithm>
#include <utility>

#include "heddle/sdk.h"

namespace heddle::ddp {

Arrivals::Arrivals(std::vector<std::string> names, std::vector<bool> parts)
    : names_(std::move(names)), parts_(std::move(parts)), owed_(names_.size(), 0), came_(names_.size(), 0) {}

void Arrivals::begin(Count count) {
  sequence_.clear();
  from_queue_ = false;
  std::fill(came_.begin(), came_.end(), 0);
  const bool learning = count == Count::learning;
  for (int i = 0; i < size(); ++i)
    owed_[i] = !learned_.empty() ? learned_[i] : learning || parts_[i] ? kUntilTheEnd : 1;
}

void Arrivals::reached_only(const std::vector<bool>& reached) {
  for (int i = 0; i < size(); ++i)
    if (!reached[i]) owed_[i] = 0;
}

// A leaf gets the sum of its queued gradients in one addition.
void Arrivals::draining(const std::vector<bool>& awaited) {
  from_queue_ = true;
  for (int i = 0; i < size(); ++i) owed_[i] = awaited[i] ? 1 : 0;
}

bool Arrivals::arrive(int parameter) {
  ++came_[parameter];
  sequence_.push_back(parameter);
  int& owed = owed_[parameter];
  if (owed == 0) refuse(parameter);
  return owed > 0 && --owed == 0;
}

void Arrivals::refuse(int parameter) const {
  const std::string what = "the parameter '" + names_[parameter] + "' got a gradient ";
  if (!learned_.empty())
    throw Error(ErrorCode::input, "ddp", what + "more often than in the first step",
                "set static_graph: false");
  if (came_[parameter] > 1)
    throw Error(ErrorCode::input, "ddp",
                what + "twice in one backward, because a unit runs a nested backward",
                "set static_graph: true, which counts the gradients of each parameter in the first step");
  throw Error(ErrorCode::input, "ddp", what + "although it is not in the autograd graph of the outputs",
              "set find_unused_parameters: false");
}

void Arrivals::learn() {
  if (!from_queue_) learned_ = came_;
}

std::vector<int64_t> Arrivals::order() const {
  std::vector<int64_t> order;
  std::vector<bool> listed(names_.size());
  for (size_t i = sequence_.size(); i-- > 0;) {  // a gradient is complete when its last part arrives
    if (listed[sequence_[i]]) continue;
    listed[sequence_[i]] = true;
    order.push_back(sequence_[i]);
  }
  std::reverse(order.begin(), order.end());
  for (int i = 0; i < size(); ++i)
    if (!listed[i]) order.push_back(i);
  return order;
}

}  // namespace heddle::ddp
