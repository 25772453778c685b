// Mistakes that the simulated communicator makes on purpose, to see that each is found.
#pragma once

#include <string>

namespace heddle::simulated {

enum class Mistake {
  none,
  compute_not_awaited,  // the collective does not wait for the work that was queued before it
  wait_dropped,         // Work::wait() does not make the stream wait
  event_not_recorded,   // the event of the end is older than the collective
  wrong_stream,         // the collective runs on a stream that its events do not order
  tensors_let_go,       // its tensors are not held until the wait, nor is their memory
};

// The `nth` call of `operation` on rank 0 makes it; {} for none.
struct Seeded {
  Mistake mistake = Mistake::none;
  std::string operation;
  int nth = 0;
};

void set_mistake(const Seeded& seeded);
// Counts a call of rank 0; the mistake that it makes.
Mistake mistake_of(int rank, const std::string& operation);

}  // namespace heddle::simulated
