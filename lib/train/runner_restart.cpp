// The first forwards of a step, which are run again if the last update turns out to be wrong.
#include "lib/train/runner.h"

namespace heddle::train {

// The opening of a call; run again with other parameters if the last update does not hold.
void Runner::open_in_doubt(const Batch& batch) {
  const size_t recorded = recording_ == nullptr ? 0 : recording_->actions.size();
  go(0, program_->opening.turns);
  agree();
  if (doubt_->holds()) return;
  take_back();
  if (recording_ != nullptr)
    recording_->actions.erase(recording_->actions.begin() + static_cast<std::ptrdiff_t>(recorded),
                              recording_->actions.end());
  doubt_->amend();
  open(batch);
  go(0, program_->opening.turns);
}

// Every rank does this. What others have sent in their openings is received, and all of it is forgotten.
void Runner::take_back() {
  for (const Turn& turn : program_->opening.left) receive(turn);
  for (LocalStage& stage : locals_)
    for (MicrobatchState& state : stage.microbatches) {
      for (const auto& work : state.arriving.works) work->wait();
      state = MicrobatchState();
    }
  if (wires_) wires_->settle();
  for (const LocalStage& stage : locals_) stage.stage->restart_step();
  alive_ = 0;
  sum_.zero_();
  root_.reset();
  begin_sides();
}

}  // namespace heddle::train
