// Marks in a stream that other streams wait for, used again and again.
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
  // What `stream` is given from now on runs after the record.
  void hold_up(cudaStream_t stream) const;
  bool passed() const;  // the record has been reached; true too after an error of the device

 private:
  cudaEvent_t event_ = nullptr;
};

// Events that nobody else holds are handed out again, so a step makes none.
class Events {
 public:
  std::shared_ptr<Event> take();

 private:
  std::vector<std::shared_ptr<Event>> all_;
  size_t next_ = 0;
};

}  // namespace heddle::nccl
