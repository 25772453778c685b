// Launching in order within a limit, and the second sum over replicas.
#include "reducer.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace heddle::sharding {

Reducer::Reducer(const Model& model, const Policy& policy)
    : order_(model.order), most_(policy.buckets_in_flight), limit_(policy.elements_in_flight) {
  for (size_t turn = 0; turn < order_.size(); ++turn) order_[turn]->turn_ = turn;
  for (const auto& bucket : model.buckets)
    if (bucket->gradients() != nullptr) bucket->gradients()->elements_ = bucket->elements();
}

void Reducer::ready(Gradients& gradients) {
  gradients.ready_ = true;
  while (next_ < order_.size() && order_[next_]->ready_) launch(*order_[next_++]);
}

void Reducer::wait_for(const Gradients& gradients) {
  while (gradients.in_flight_) settle();
}

void Reducer::flush(bool last) {
  last_ = last_ || last;
  while (next_ < order_.size()) launch(*order_[next_++]);
  for (Gradients* gradients : order_) gradients->ready_ = false;
  next_ = 0;
}

void Reducer::launch(Gradients& gradients) {
  at::NoGradGuard no_gradients;
  wait_for(gradients);
  while (!flying_.empty() && (flying_.size() >= most_ || elements_ + gradients.elements_ > limit_)) settle();
  InFlight one{&gradients, gradients.reduce(), last_};
  elements_ += gradients.elements_;
  gradients.in_flight_ = true;
  flying_.push_back(std::move(one));
  while (!flying_.empty() && flying_.front().work == nullptr) settle();  // already complete
}

void Reducer::settle() {
  at::NoGradGuard no_gradients;
  InFlight one = std::move(flying_.front());
  flying_.pop_front();
  if (one.work) one.work->wait();
  elements_ -= one.gradients->elements_;
  one.gradients->in_flight_ = false;
  one.gradients->reduced();
  if (!one.last) return;
  if (std::unique_ptr<Work> work = one.gradients->reduce_replicas())
    across_.push_back({one.gradients, std::move(work), true});
}

void Reducer::finish() {
  while (!flying_.empty()) settle();
  at::NoGradGuard no_gradients;
  for (InFlight& one : across_) {
    one.work->wait();
    one.gradients->replicas_reduced();
  }
  across_.clear();
  last_ = false;
}

void Reducer::abandon() noexcept {
  for (std::deque<InFlight>* all : {&flying_, &across_})
    for (InFlight& one : *all) {
      try {
        if (one.work) one.work->wait();
      } catch (...) {  // a rank is lost; the error was thrown to the waiting caller
      }
    }
}

}  // namespace heddle::sharding
