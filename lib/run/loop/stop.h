// Agreement of all ranks to stop a run before its last step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/rendezvous.h"
#include "lib/run/spec/stop_request.h"

namespace heddle {

// Replaces a signal number, and exceeds all of them. Rank 0 knows the gradient norms so far, and one more
// that is not finite would exceed max_skipped_updates, so ranks agree again after the step.
inline constexpr int kMayEndSkipping = 900;
// The next step's batch cannot be read.
inline constexpr int kUnreadable = 950;
// An asynchronous save has failed.
inline constexpr int kSavingFailed = 1000;
// Too many consecutive updates were skipped.
inline constexpr int kSkippedTooMany = 1001;

// Finds out whether any rank was asked to stop. With several ranks, an all-reduce (maximum) of one number
// starts with each step and is read at its end, so no rank waits for it. A single rank reads its own request.
class StopAgreement {
 public:
  // A collective of all ranks.
  StopAgreement(Rendezvous& rendezvous, const StopRequest& request);

  // Starts the agreement with this rank's state: the maximum of the signal that it received and `own`. A
  // collective.
  void begin(int own = 0);
  // Returns the result of begin(), equal on every rank: the maximum over all ranks, or 0. Throws
  // Error{rank_lost}.
  int end();
  // Combines begin() and end() for callers whose ranks are already synchronized.
  int now(int own = 0);

 private:
  const StopRequest& stop_request_;
  std::unique_ptr<Communicator> world_;  // null: one rank
  at::Tensor number_;
  std::unique_ptr<Work> asked_;
};

}  // namespace heddle
