// Recording and running again. The second run is left by an exception that passes through the unit's frames
// only.
#include "heddle/model/region.h"

#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"

namespace heddle::model {
namespace {

thread_local Region* active_region = nullptr;

// Thrown when the last needed value was saved. Not a std::exception, so that no catch clause takes it for an
// error.
struct Complete {};

}  // namespace

Region::~Region() = default;

Region* Region::active() {
  return active_region;
}

Region::Run::Run(Region& region) : region_(region), outer_(std::exchange(active_region, &region)) {}

Region::Run::~Run() {
  active_region = outer_;
  if (region_.state_ == State::recording) region_.close();
}

// Results after the last value are not kept: the second run ends before them.
void Region::close() {
  while (!results_.empty() && results_.back().values_before == count_) results_.pop_back();
  state_ = State::recorded;
}

bool Region::keeps(Operator kind) const {
  if (keeps_ == Keeps::nothing) return false;
  return kind != Operator::product || products_ % 2 == 0;
}

at::Tensor Region::take_result(Operator kind) {
  if (state_ != State::running_again || !keeps(kind) || next_result_ >= results_.size()) return {};
  if (kind == Operator::product) ++products_;
  return std::exchange(results_[next_result_++].tensor, {});
}

void Region::give_result(Operator kind, const at::Tensor& result) {
  if (keeps(kind) && state_ == State::recording)
    results_.push_back({result.defined() ? result.tensor_data() : result, count_});
  if (kind == Operator::product) ++products_;
}

int32_t Region::add(const at::Tensor& value) {
  if (state_ == State::recording) return count_++;
  values_.push_back(value.defined() ? Value{value.tensor_data(), static_cast<uint32_t>(value._version())}
                                    : Value{});
  if (values_.size() >= static_cast<size_t>(count_)) throw Complete{};
  return kNoPlace;
}

void Region::compute_values() {
  if (state_ != State::recorded)
    throw Error(ErrorCode::internal, "model", "a unit was asked for a value while it ran");
  state_ = State::running_again;
  products_ = 0;
  values_.reserve(count_);
  try {
    const Run run(*this);
    run_again();
  } catch (const Complete&) {
  }
  state_ = State::complete;
  results_.clear();
  if (values_.size() != static_cast<size_t>(count_))
    throw Error(ErrorCode::internal, "model",
                "a unit under activation checkpointing saved " + std::to_string(count_) +
                    " values in its forward and " + std::to_string(values_.size()) +
                    " when it was computed again",
                "let its forward depend on its inputs, its batch and its parameters alone");
}

Region::Value Region::take(int32_t place) {
  if (state_ != State::complete) compute_values();
  return std::exchange(values_[place], {});
}

}  // namespace heddle::model
