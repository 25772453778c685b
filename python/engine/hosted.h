// A PyTorch model whose forward Python drives and whose parameters a strategy of heddle holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/train/step.h"
#include "world.h"

namespace torch::autograd {
struct Node;
}

namespace heddle::python {

using Files = std::vector<std::pair<std::string, std::string>>;  // names and texts
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// A module that is gathered, run and released together, with the parameters that no earlier unit names.
struct GivenUnit {
  std::string name;
  std::vector<std::pair<std::string, at::Tensor>> parameters;  // by full name; tied ones have one name
  std::vector<at::Tensor> buffers;
};

// Called by the thread that trains, without the GIL. The graphs of its forwards hold it.
class Hosted : public std::enable_shared_from_this<Hosted> {
 public:
  struct Given {
    std::shared_ptr<World> world;
    std::string configuration, origin;  // as of read_configuration()
    std::vector<GivenUnit> units;
    ParameterSource source;  // of parameters on meta
    std::function<void(bool synchronized)> backward_ended;
    bool averages = true;  // gradients are means over the data-parallel ranks; else sums
  };
  explicit Hosted(Given given);
  // Once the interpreter has ended the stages are leaked.
  ~Hosted();

  World& world() { return *world_; }
  engine::Model& model() { return *model_; }
  ParallelStage& stage() { return *model_->stages.front(); }
  std::vector<Shard*>& shards() { return shards_; }
  const std::string& strategy() const { return model_->setup.strategy; }
  const std::vector<std::string>& warnings() const { return model_->setup.warnings; }
  std::optional<at::ScalarType> autocast() { return stage().autocast(); }
  // The dtypes of a unit's inputs and results; empty: they stay.
  std::pair<std::optional<at::ScalarType>, std::optional<at::ScalarType>> precision(size_t unit);

  // The tensor that modules compute with, of a parameter that was on meta.
  at::Tensor parameter(const std::string& name) const;

  bool checkpoints() const { return checkpoints_; }  // distributed.activation_checkpointing

  void begin(bool training);
  void before(size_t unit) { stage().before(unit); }
  void after(size_t unit, const Tensors& outputs);
  void end();
  void abandon() noexcept;
  // Whether backwards reduce: no for the microbatches of a step but the last.
  void synchronize(bool wanted) { synchronizes_ = wanted; }

  at::Tensor norm(double type);  // fp64 [1]; a collective of every rank
  void parameters_changed(ParametersChange change = ParametersChange::updated) {
    stage().parameters_changed(change);
  }

  // A tensor of an optimizer: index of its shard, prefix of its name, and the tensor, a box like the shard or
  // without dims.
  using State = std::tuple<size_t, std::string, at::Tensor>;
  // DIRECTORY/model and, with states, DIRECTORY/optim; `files` (name, text) are written by rank 0. The
  // directory appears when it is complete. A collective of every rank.
  void save(const std::string& directory, const std::vector<State>& states, const Files& files);
  void load(const std::string& directory, const std::vector<State>& states);

  std::map<std::string, at::Tensor> hold_whole();
  void release_whole() { stage().release_whole(); }

 private:
  class Began;
  bool accumulates() const;
  void begin_backward();
  void end_backward();
  std::vector<checkpoint::Part> parts_of(const std::vector<State>& states);
  std::string next_key(const char* work);

  std::shared_ptr<World> world_;
  std::unique_ptr<engine::Model> model_;
  std::vector<Shard*> shards_;
  std::map<std::string, at::Tensor*> parameters_;
  std::function<void(bool)> backward_ended_;
  std::map<double, train::GradientNorm> norms_;
  double average_ = 1;                                                // factor of the sums
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // of trainable parameters
  bool checkpoints_ = false;
  bool frees_ = false;        // modules compute with tensors other than the shards
  bool synchronizes_ = true;  // wanted of the next backward
  bool in_backward_ = false, reduces_ = false;
  bool reduced_ = false;  // the last step is over, and no forward has begun another
  int64_t saves_ = 0;
};

// The sections that the engine reads, of a YAML text, or of the file `origin` where the text is empty.
Node read_configuration(const std::string& text, const std::string& origin);

// Writes DIRECTORY/model and DIRECTORY/optim; the directory appears when it is complete. `states`: null where
// no rank has any. A collective of every rank; `key` is used once in a run.
void write_parts(Rendezvous& rendezvous, const std::string& key, const std::filesystem::path& to,
                 const std::vector<checkpoint::Part>& model, const std::vector<checkpoint::Part>* states,
                 const Files& files);

// Writes whole tensors as a checkpoint of DIRECTORY/model and DIRECTORY/optim, on one rank.
void write_checkpoint(World& world, const std::string& directory, const NamedTensors& model,
                      const NamedTensors& states, const Files& files);

}  // namespace heddle::python
