// Hosted, a PyTorch model whose forward Python drives and whose parameters a heddle strategy owns.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
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

using Files = std::vector<std::pair<std::string, std::string>>;  // name and text
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// A module that is gathered, run and released together, with the parameters that no earlier unit has.
struct GivenUnit {
  std::string name;
  std::vector<std::pair<std::string, at::Tensor>> parameters;  // by full name; a tied parameter has one name
  std::vector<at::Tensor> buffers;
};

// Called by the thread that trains, without the GIL; a call of another thread meanwhile throws Error{usage}.
// The graphs of its forwards hold it.
class Hosted : public std::enable_shared_from_this<Hosted> {
 public:
  struct Given {
    std::shared_ptr<World> world;
    std::string configuration, origin;  // see read_configuration()
    std::vector<GivenUnit> units;
    ParameterSource source;  // of parameters on meta
    std::function<void()> backward_ended;
    bool averages = true;  // gradients are means over the data-parallel ranks; else sums
  };
  explicit Hosted(Given given);
  // After the end of the interpreter, the stages are leaked.
  ~Hosted();

  World& world() { return *world_; }
  engine::Model& model() { return *model_; }
  ParallelStage& stage() { return *model_->stages.front(); }
  std::vector<Shard*>& shards() { return shards_; }
  const std::string& strategy() const { return model_->setup.strategy; }
  const std::vector<std::string>& warnings() const { return model_->setup.warnings; }
  std::optional<at::ScalarType> autocast() { return stage().autocast(); }
  // Returns the dtypes to which a unit's inputs and results are cast; empty: no cast.
  std::pair<std::optional<at::ScalarType>, std::optional<at::ScalarType>> precision(size_t unit);

  // Returns the tensor that modules use for a parameter that was on meta.
  at::Tensor parameter(const std::string& name) const;

  bool checkpoints() const { return checkpoints_; }  // distributed.activation_checkpointing

  void begin(bool training);
  void before(size_t unit);
  void after(size_t unit, const Tensors& outputs);
  void end();
  void abandon() noexcept;
  // Sets whether backwards reduce gradients: false for all microbatches of a step except the last.
  void synchronize(bool wanted) { synchronizes_ = wanted; }

  at::Tensor norm(double type);  // fp64 [1]; a collective of every rank
  void parameters_changed();

  // A tensor of the optimizer state: index of its shard, prefix of its name, and the tensor, which has the
  // box of the shard or no dims.
  using State = std::tuple<size_t, std::string, at::Tensor>;
  // Writes DIRECTORY/model and, with states, DIRECTORY/optim. Rank 0 writes `files` (name, text). The
  // directory appears once it is complete. A collective of every rank.
  void save(const std::string& directory, const std::vector<State>& states, const Files& files);
  void load(const std::string& directory, const std::vector<State>& states);

  std::map<std::string, at::Tensor> hold_whole();
  void release_whole();

 private:
  class Began;
  class Call;
  bool accumulates() const;
  void begin_backward();
  void set_gradients_aside();
  void exchange_earlier_gradients();
  void add_earlier_gradients();
  void end_backward();
  std::vector<checkpoint::Part> parts_of(const std::vector<State>& states);
  std::string next_key(const char* work);

  std::shared_ptr<World> world_;
  std::unique_ptr<engine::Model> model_;
  std::vector<Shard*> shards_;
  std::map<std::string, at::Tensor*> parameters_;
  std::function<void()> backward_ended_;
  std::vector<std::pair<Shard*, at::Tensor>> earlier_;  // shards with their gradients of earlier steps
  std::map<double, train::GradientNorm> norms_;
  double average_ = 1;                                                // factor of gradients after their sum
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // of trainable parameters
  bool checkpoints_ = false;
  bool frees_ = false;              // modules compute with tensors other than the shards
  bool synchronizes_ = true;        // wanted of the next backward
  std::atomic<bool> busy_ = false;  // a call is under way
  std::atomic<bool> in_backward_ = false;
  bool reduces_ = false;
  bool reduces_gradients_ = false;  // false: single, where autograd adds to the gradients itself
  bool reduced_ = false;            // the last step is over, and no forward has begun another
  bool aside_due_ = false;          // the next forward begins a step
  bool shows_earlier_ = false;      // parameters have the gradients of earlier steps
  int64_t saves_ = 0;
};

// Reads the sections that the engine uses from a YAML text, or from the file `origin` if the text is empty.
Node read_configuration(const std::string& text, const std::string& origin);

// Writes DIRECTORY/model and DIRECTORY/optim. The directory appears once it is complete. states: null if no
// rank has any. key: used only once in a run. A collective of every rank.
void write_parts(Rendezvous& rendezvous, const std::string& key, const std::filesystem::path& to,
                 const std::vector<checkpoint::Part>& model, const std::vector<checkpoint::Part>* states,
                 const Files& files);

// Writes whole tensors as a checkpoint of DIRECTORY/model and DIRECTORY/optim, on one rank.
void write_checkpoint(World& world, const std::string& directory, const NamedTensors& model,
                      const NamedTensors& states, const Files& files);

}  // namespace heddle::python
