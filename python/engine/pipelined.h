// Pipelined, a sequence of PyTorch modules in a pipeline: heddle::Step runs the schedule and updates with
// AdamW.
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
  // Runs the piece. The first piece reads the batch, and the last one returns the sum of its token losses.
  // Called without the GIL.
  std::function<Tensors(Tensors inputs, const Batch& batch)> forward;
};

// A pipeline. The training thread calls it without the GIL.
class Pipelined {
 public:
  Pipelined(std::shared_ptr<World> world, const std::string& configuration, const std::string& origin,
            std::vector<GivenPiece> pieces, const StepConfig& config);
  // After the end of the interpreter, the stages are leaked.
  ~Pipelined();

  // Takes a step with this rank's batches. Returns the loss per label token over all ranks, and the gradient
  // norm.
  std::pair<double, double> step(const std::vector<Batch>& batches, double lr, double weight_decay);
  double evaluate(const std::vector<Batch>& batches);
  // Save and load a checkpoint like Hosted, with the state of AdamW.
  void save(const std::string& directory, const Files& files);
  void load(const std::string& directory);

 private:
  template <class Work>
  auto with_faults(Work&& work);  // rethrows the original exception of a piece

  std::shared_ptr<World> world_;
  std::shared_ptr<std::exception_ptr> fault_ = std::make_shared<std::exception_ptr>();
  std::unique_ptr<engine::Model> model_;
  std::unique_ptr<Step> step_;
  std::atomic<bool> busy_ = false;  // a call is under way
  int64_t saves_ = 0;
};

}  // namespace heddle::python
