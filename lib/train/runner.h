// Runs a rank's part of a pipeline schedule: the only place where autograd starts and where stages send and
// receive.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/batch.h"
#include "heddle/model/side_outputs.h"
#include "heddle/model/unit.h"
#include "heddle/nn/weight_gradients.h"
#include "heddle/parallel/stages.h"
#include "heddle/parallel/strategy.h"
#include "heddle/train/step.h"
#include "lib/train/cut.h"
#include "lib/train/program.h"
#include "lib/train/wires.h"

namespace heddle::train {

// The outputs themselves are not kept: a backward starts from their edges in the graph, so their memory is
// freed once they are sent and autograd does not need it.
struct MicrobatchState {
  Batch batch;
  Arriving arriving;                         // the inputs, in flight from another rank
  Tensors inputs;                            // leaves; their gradients are sent back
  Tensors outputs;                           // until they are sent
  std::vector<torch::autograd::Edge> roots;  // of the outputs that need a gradient
  Arriving returning;                        // the gradients of those, in flight
  Tensors gradients;                         // of the outputs, from a stage on this rank
  Tensors input_gradients;                   // until they are sent
  std::unique_ptr<WeightGradients> weights;  // made if the schedule splits the backward; reused
};

// A stage of this rank and its neighbours.
struct LocalStage {
  ParallelStage* stage = nullptr;
  int index = 0;                   // in the model
  bool first = true, last = true;  // of the model
  int before = -1, after = -1;     // indices of the neighbours among this rank's stages; -1: on another rank
  std::vector<MicrobatchState> microbatches;  // [microbatch]
};

// An update that may be wrong while the forwards of the next step run already (post-validation).
class UpdateInDoubt {
 public:
  virtual ~UpdateInDoubt() = default;
  virtual bool holds() = 0;  // waits; the same on every rank
  virtual void amend() = 0;  // after holds() said no: gives the parameters their right values
};

// A batch is one call of the schedule, cut into microbatches of rows; several batches accumulate gradients.
// Without a pipeline a batch is one microbatch on one stage, and the flow is the same.
class HEDDLE_API Runner {
 public:
  // The stages outlive it. It is not moved.
  Runner(Stages& stages, const DeviceMesh& mesh);

  // Forward and backward of all batches; sends are done when it returns, reductions are in flight. `scale`:
  // the factor of the losses' sum, called once, before the first backward of a loss. `microbatches`: their
  // number in the step on all data-parallel ranks, called if an auxiliary loss is divided by it. `doubt`: of
  // the last update, asked before the first backward; if it does not hold, the step begins anew.
  // `check_counts`: called before the second forward, the first backward and what `doubt` waits for; all
  // ranks run as far, whatever number of microbatches each has. Returns the sum of this rank's token losses,
  // fp64 [1]: zero if the last stage is on another rank.
  at::Tensor train(std::span<const Batch> batches, const std::function<double()>& scale,
                   const std::function<double()>& microbatches = {}, UpdateInDoubt* doubt = nullptr,
                   const std::function<void()>& check_counts = {});
  // The forwards alone.
  at::Tensor evaluate(std::span<const Batch> batches, const std::function<void()>& check_counts = {});

  // The side outputs of this rank's stages and transforms since train() or evaluate() began.
  const SideOutputs& side_outputs() const { return sides_; }
  // Microbatches of these batches. Throws as train() does for rows that do not divide.
  int64_t count_microbatches(std::span<const Batch> batches) const;

  // The most microbatches that were alive at once on this rank, over its stages.
  int peak_alive() const { return peak_alive_; }
  // Records every action from now on; null: stops.
  void record(Recording* recording) { recording_ = recording; }

 private:
  at::Tensor run(std::span<const Batch> batches, schedule::Purpose purpose);
  const Program& program(int microbatches);
  void open(const Batch& batch);
  void run_turns(size_t from, size_t to);
  void open_in_doubt(const Batch& batch);
  void take_back();
  void begin_sides();
  void warn_of_bubble();
  bool overlap(const Turn& turn, const Turn& next) const;
  void run_turn(const Turn& turn);
  void run_recorded(const Turn& turn);
  void dispatch(const Turn& turn, RanAction* ran);
  void check_counts_once();
  void await_inputs();
  void note_ready(RanAction* ran) const;

  void forward(const Turn& turn, RanAction* ran);
  void take_loss(MicrobatchState& state, const Tensors& outputs);
  void pass_on(LocalStage& stage, MicrobatchState& state, int microbatch, Tensors outputs);

  void backward(const Turn& turn, RanAction* ran);
  void backward_weight(const Turn& turn);
  Tensors gradients_of(LocalStage& stage, MicrobatchState& state);
  void walk_back(const std::vector<torch::autograd::Edge>& roots, const Tensors& gradients);
  at::Tensor root_gradient(const at::Tensor& loss);
  double main_scale();
  double side_scale(LossDivisor divisor);
  void return_gradients(LocalStage& stage, MicrobatchState& state, int microbatch);

  Wires::Elsewhere elsewhere();
  void send(const Turn& turn);
  void receive(const Turn& turn);
  void guide(const Turn& turn);

  Stages& stages_;
  const DeviceMesh mesh_;
  const int ranks_;  // of pp
  std::vector<LocalStage> locals_;
  std::optional<Wires> wires_;          // empty: every stage is here
  std::map<int, Program> programs_[2];  // [purpose], by the number of microbatches
  SideOutputs sides_;
  Overlap* const overlap_;  // null: actions run one after another
  bool warned_ = false;
  int alive_ = 0, peak_alive_ = 0;

  // State of the current step and call.
  schedule::Purpose purpose_ = schedule::Purpose::training;
  const std::function<double()>*scale_ = nullptr, *all_microbatches_ = nullptr;
  UpdateInDoubt* doubt_ = nullptr;
  const std::function<void()>* check_counts_ = nullptr;  // null: it was called
  at::Tensor sum_, root_;                                // of the losses; the gradient of a loss
  Batch batch_;                                          // of the call, on the stages' device
  const Program* program_ = nullptr;
  Cut cut_;
  int call_ = 0;
  bool last_call_ = false;
  std::vector<int64_t> shape_;

  Recording* recording_ = nullptr;
};

}  // namespace heddle::train
