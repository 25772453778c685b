// CUDA events without timing.
#include "cuda/events.h"

#include "cuda/check.h"

namespace heddle::nccl {

Event::Event() {
  check(functions().event_create(&event_), "create an event");
}

Event::~Event() {
  functions().event_destroy(event_);  // an error here was reported before
}

void Event::record(cudaStream_t stream) {
  check(functions().event_record(event_, stream), "record an event");
}

void Event::block(cudaStream_t stream) const {
  check(functions().stream_wait(stream, event_), "let a stream wait");
}

bool Event::passed() const {
  const cudaError_t state = functions().event_query(event_);
  if (state == cudaErrorNotReady)
    functions().last_error();  // clears cudaErrorNotReady, which is not an error
  return state != cudaErrorNotReady;
}

std::shared_ptr<Event> Events::take() {
  for (size_t tried = 0; tried < all_.size(); ++tried) {
    next_ = next_ + 1 < all_.size() ? next_ + 1 : 0;
    if (all_[next_].use_count() == 1) return all_[next_];
  }
  return all_.emplace_back(std::make_shared<Event>());
}

}  // namespace heddle::nccl
