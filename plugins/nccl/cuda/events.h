// CUDA events that order streams, and a pool of them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

namespace heddle::nccl {

// A cudaEvent without timing. Recording and waiting do not synchronize the host.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  // Makes later work on `stream` run after the record.
  void block(cudaStream_t stream) const;
  bool passed() const;  // whether the record was reached; also true after a device error

 private:
  cudaEvent_t event_ = nullptr;
};

// Reuses events without other owners, so that a step creates none.
class Events {
 public:
  std::shared_ptr<Event> take();

 private:
  std::vector<std::shared_ptr<Event>> all_;
  size_t next_ = 0;
};

}  // namespace heddle::nccl
