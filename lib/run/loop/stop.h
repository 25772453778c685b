// Ending a run before its last step: how its ranks agree on one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/rendezvous.h"
#include "lib/run/spec/stop_request.h"

namespace heddle {

// In the place of a signal, above all signals. Rank 0 has read the gradient norms so far: one more that is
// not finite is one too many, so it is asked again after the step.
inline constexpr int kMayEndSkipping = 900;
// The next step's batch cannot be read.
inline constexpr int kUnreadable = 950;
// A save that went on beside the steps has failed.
inline constexpr int kSavingFailed = 1000;
// Too many updates in a row were skipped.
inline constexpr int kSkippedTooMany = 1001;

// Whether any rank of the run was asked to end. With several ranks one number goes over all of them beside
// each step (a maximum that starts with the step and is read at its end), so nobody waits for it; one rank
// asks itself.
class StopAgreement {
 public:
  // A collective of all ranks.
  StopAgreement(Rendezvous& rendezvous, const StopRequest& request);

  // Starts to ask, with what this rank knows now: the signal that it got, or `own` where that is more. A
  // collective.
  void begin(int own = 0);
  // The answer to begin(), the same on every rank: the largest of all of them, or 0. Throws Error{rank_lost}.
  int end();
  // Both at once, where the ranks have waited for each other anyway.
  int now(int own = 0);

 private:
  const StopRequest& stop_request_;
  std::unique_ptr<Communicator> world_;  // null: one rank
  at::Tensor number_;
  std::unique_ptr<Work> asked_;
};

}  // namespace heddle
