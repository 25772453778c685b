// CUDA events that order streams, and a pool of them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

namespace heddle::nccl {

// One cudaEvent, without times: recording and waiting cost no host synchronisation.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  // Work enqueued on `stream` from now on runs after the record.
  void block(cudaStream_t stream) const;
  bool passed() const;  // the record has been reached; true too after an error of the device

 private:
  cudaEvent_t event_ = nullptr;
};

// Events without other owners are reused, so a step creates none.
class Events {
 public:
  std::shared_ptr<Event> take();

 private:
  std::vector<std::shared_ptr<Event>> all_;
  size_t next_ = 0;
};

}  // namespace heddle::nccl
