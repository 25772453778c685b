// A row of PyTorch modules in a pipeline: heddle::Step runs the schedule and updates with AdamW.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/train/step.h"
#include "hosted.h"
#include "world.h"

namespace heddle::python {

struct GivenPiece {
  GivenUnit unit;
  // The first piece reads the batch, the last one returns the sum of its token losses. Called with the GIL
  // released.
  std::function<Tensors(Tensors inputs, const Batch& batch)> forward;
};

// Called by the thread that trains, without the GIL.
class Pipelined {
 public:
  Pipelined(std::shared_ptr<World> world, const std::string& configuration, const std::string& origin,
            std::vector<GivenPiece> pieces, const StepConfig& config);
  // Once the interpreter has ended the stages are leaked.
  ~Pipelined();

  // One step over this rank's batches: the loss per label token of all ranks, and the norm of the gradients.
  std::pair<double, double> step(const std::vector<Batch>& batches, double lr, double weight_decay);
  double evaluate(const std::vector<Batch>& batches);
  // As of Hosted, with the state of AdamW.
  void save(const std::string& directory, const Files& files);
  void load(const std::string& directory);

 private:
  template <class Work>
  auto with_faults(Work&& work);  // what a piece threw comes out as itself

  std::shared_ptr<World> world_;
  std::shared_ptr<std::exception_ptr> fault_ = std::make_shared<std::exception_ptr>();
  std::unique_ptr<engine::Model> model_;
  std::unique_ptr<Step> step_;
  std::atomic<bool> busy_ = false;  // a call is under way
  int64_t saves_ = 0;
};

}  // namespace heddle::python
