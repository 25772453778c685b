// Builds the stage of a hosted model, handles the begin and the end of a backward, and computes the norm and
// checkpoints.
#include "hosted.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/config/node.h"

namespace heddle::python {
namespace {

class HostUnit final : public Unit, public UnitBuffers {
 public:
  explicit HostUnit(GivenUnit given) : given_(std::move(given)) {}
  std::string_view name() const override { return given_.name; }
  Module* module() override { return nullptr; }
  // Returns the parameters. Those on meta get new tensors; the others are modified in place.
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out;
    for (auto& [name, tensor] : given_.parameters) out.push_back({name, &tensor, {}, !tensor.is_meta()});
    return out;
  }
  std::vector<at::Tensor> buffers() override { return given_.buffers; }
  Tensors forward(Tensors, const Batch&) override {
    throw Error(ErrorCode::internal, "heddle.fully_shard",
                "the unit '" + given_.name + "' can only be run by Python");
  }

 private:
  GivenUnit given_;
};

// Throws for axes that split heddle's own layers or the batch.
void check_sizes(const Setup& setup) {
  const std::pair<const char*, int> sizes[] = {{"pp_size", setup.sizes.pp},
                                               {"tp_size", setup.sizes.tp},
                                               {"cp_size", setup.sizes.cp},
                                               {"ep_size", setup.sizes.ep}};
  for (const auto& [key, size] : sizes)
    if (size > 1)
      throw Error(ErrorCode::not_built, std::string("distributed.") + key,
                  std::string(key) + " is " + std::to_string(size) +
                      ", but heddle cannot split the layers of a PyTorch model",
                  "set it to 1, or train a recipe with heddle.train");
}

// Called on rank 0.
void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(ErrorCode::io, path.string(), "cannot be written", "make room on the disk");
}

using Parts = std::vector<checkpoint::Part>;

Parts whole_parts(const NamedTensors& tensors) {
  Parts parts;
  for (const auto& [name, tensor] : tensors)
    parts.push_back({name, tensor.contiguous(), tensor.sizes().vec(), std::vector<int64_t>(tensor.dim(), 0)});
  return parts;
}

}  // namespace

Node read_configuration(const std::string& text, const std::string& origin) {
  static const std::vector<std::string> keys = {"distributed", "dist_env"};
  return text.empty() ? config::read_only(origin, keys) : config::read_text(text, origin);
}

void write_parts(Rendezvous& rendezvous, const std::string& key, const std::filesystem::path& to,
                 const std::vector<checkpoint::Part>& model, const std::vector<checkpoint::Part>* states,
                 const Files& files) {
  const std::filesystem::path staged = checkpoint::stage_of(to);
  checkpoint::on_first(rendezvous, key + " open", [&] {
    checkpoint::open_stage(to);
    std::filesystem::create_directory(staged / "model");
    if (states != nullptr) std::filesystem::create_directory(staged / "optim");
    for (const auto& [name, text] : files) write_file(staged / name, text);
  });
  checkpoint::write_sharded(staged / "model", "model", model, rendezvous, key + " model");
  if (states != nullptr)
    checkpoint::write_sharded(staged / "optim", "optim", *states, rendezvous, key + " optim");
  checkpoint::on_first(rendezvous, key + " publish", [&] { checkpoint::publish(to); });
}

void write_checkpoint(World& world, const std::string& directory, const NamedTensors& model,
                      const NamedTensors& states, const Files& files) {
  const Parts optimizer = whole_parts(states);
  write_parts(world.rendezvous(), "import " + directory, directory, whole_parts(model),
              states.empty() ? nullptr : &optimizer, files);
}

// Recomputed units call within a backward.
class Hosted::Call {
 public:
  explicit Call(Hosted& hosted, bool recomputes = false) : one_(hosted.busy_, "heddle.fully_shard") {
    if (hosted.in_backward_ && !(recomputes && torch::autograd::get_current_graph_task_id() >= 0))
      throw Error(ErrorCode::usage, "heddle.fully_shard",
                  "the engine is called while a backward of the model runs, or after one that threw",
                  "wait for the end of the backward; after an exception in it begin with a forward");
  }

 private:
  OneCall one_;
};

// Called before the node that made an output of a unit runs.
class Hosted::Began final : public torch::autograd::FunctionPreHook {
 public:
  explicit Began(std::shared_ptr<Hosted> hosted) : hosted_(std::move(hosted)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    hosted_->begin_backward();
    return gradients;
  }

 private:
  std::shared_ptr<Hosted> hosted_;  // keeps the stage alive as long as the graph
};

Hosted::Hosted(Given given)
    : world_(std::move(given.world)), backward_ended_(std::move(given.backward_ended)) {
  const Node configuration = read_configuration(given.configuration, given.origin);
  engine::ModelHost host{.rendezvous = world_->rendezvous(),
                         .make_units =
                             [&](const Setup&) {
                               Units units;
                               for (GivenUnit& unit : given.units)
                                 units.push_back(std::make_unique<HostUnit>(std::move(unit)));
                               for (const auto& unit : units)
                                 for (const ParameterSlot& slot : unit->parameters())
                                   parameters_.emplace(slot.name, slot.tensor);
                               return units;
                             },
                         .source = std::move(given.source)};
  Setup setup = engine::validate(configuration, world_->plugins(), world_->rendezvous().world_size());
  check_sizes(setup);
  checkpoints_ = setup.activation_checkpointing != ActivationCheckpointing::none;
  setup.activation_checkpointing = ActivationCheckpointing::none;  // the model's Python code does it
  model_ = std::make_unique<engine::Model>(engine::model(std::move(setup), world_->plugins(), host));
  reduces_gradients_ = aside_due_ = model_->setup.strategy != "single";
  if (!stage().can_host_forward())
    throw Error(
        ErrorCode::config, "distributed.strategy",
        "the strategy '" + model_->setup.strategy + "' cannot run a forward that Python drives",
        "choose single, ddp, fsdp2, megatron_fsdp or megatron, with tp_size, cp_size, ep_size and pp_size 1");
  shards_ = model_->stages.shards();
  std::set<const void*> owned;
  for (const Shard* shard : shards_) owned.insert(shard->tensor.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : parameters_) {
    frees_ = frees_ || owned.count(tensor->unsafeGetTensorImpl()) == 0;
    if (tensor->requires_grad()) accumulators_.push_back(torch::autograd::impl::grad_accumulator(*tensor));
  }
  if (given.averages) average_ = 1.0 / model_->mesh.size("dp");
}

Hosted::~Hosted() {
  if (interpreter_lives()) return;
  (void)model_.release();
  (void)new std::shared_ptr<World>(std::move(world_));
}

at::Tensor Hosted::parameter(const std::string& name) const {
  return *parameters_.at(name);
}

// Begins a forward. Resets the state of a backward that threw.
void Hosted::begin(bool training) {
  const OneCall one(busy_, "heddle.fully_shard");
  if (in_backward_.exchange(false)) earlier_.clear();
  if (training) reduced_ = false;
  const bool sets_aside = training && std::exchange(aside_due_, false);
  if (sets_aside) set_gradients_aside();
  stage().begin_forward(Batch());
  if (sets_aside) exchange_earlier_gradients();
}

void Hosted::before(size_t unit) {
  const Call one(*this, /*recomputes=*/true);
  stage().before(unit);
}

// This hook comes before those of the stage.
void Hosted::after(size_t unit, const Tensors& outputs) {
  const Call one(*this, /*recomputes=*/true);
  const torch::autograd::Node* watched = nullptr;
  if (at::GradMode::is_enabled() && !in_backward_)
    for (const at::Tensor& output : outputs) {
      const auto& node = output.grad_fn();
      if (node == nullptr)
        output.register_hook([self = shared_from_this()](const at::Tensor&) { self->begin_backward(); });
      else if (node.get() != watched)
        node->add_tensor_pre_hook(std::make_unique<Began>(shared_from_this()));
      watched = node.get();
      // An operation in place on a view replaces its node, but not that of its base.
      if (output.is_view() && output._base().grad_fn())
        output._base().grad_fn()->add_tensor_pre_hook(std::make_unique<Began>(shared_from_this()));
    }
  stage().after(unit, outputs);
}

void Hosted::end() {
  const Call one(*this);
  stage().end_forward();
}

void Hosted::abandon() noexcept {
  if (interpreter_lives()) stage().abandon_forward();
}

// Returns whether the current backward accumulates gradients of parameters, which autograd.grad() does not.
bool Hosted::accumulates() const {
  const auto* chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) return true;
  return std::any_of(accumulators_.begin(), accumulators_.end(), [&](const auto& node) {
    const auto found = chosen->find(node.get());
    return found != chosen->end() && found->second.needed_;
  });
}

// Begins a backward. Queues a callback that queues end_backward(), so that it runs after the stage's own
// callback.
void Hosted::begin_backward() {
  if (in_backward_) return;
  const bool accumulates = this->accumulates();
  if (at::GradMode::is_enabled() && frees_)
    throw Error(ErrorCode::not_built, "heddle.fully_shard",
                "a backward with create_graph=True needs the parameters of each unit once more, which the "
                "strategy '" +
                    model_->setup.strategy + "' does not keep to a second backward",
                "choose the strategy ddp or single");
  if (accumulates && reduced_)
    throw Error(ErrorCode::usage, "heddle.fully_shard",
                "this is a further backward after the one that has reduced the gradients of its step",
                "run all backwards of a step but the last within model.no_sync()");
  if (accumulates && shows_earlier_) exchange_earlier_gradients();
  in_backward_ = true;
  reduces_ = accumulates && synchronizes_;
  if (reduces_) stage().expect_last_backward();
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  engine.queue_callback(
      [self = shared_from_this(), &engine] { engine.queue_callback([self] { self->end_backward(); }); });
}

// Takes the gradients of an earlier step before the stage begins another one and reuses their memory.
void Hosted::set_gradients_aside() {
  earlier_.clear();
  const at::NoGradGuard no_gradients;
  for (Shard* shard : shards_) {
    const at::Tensor gradient = std::exchange(shard->tensor.mutable_grad(), at::Tensor());
    earlier_.emplace_back(shard, gradient.defined() ? gradient.clone() : gradient);
  }
}

// Between the forward and the backward, parameters have the earlier gradients, so that the optimizer may
// still reset them, and `earlier_` has the gradients that the stage opened. In the backward it is the other
// way round.
void Hosted::exchange_earlier_gradients() {
  for (auto& [shard, gradient] : earlier_) std::swap(shard->tensor.mutable_grad(), gradient);
  shows_earlier_ = !shows_earlier_;
}

// Adds the earlier gradients that were not reset.
void Hosted::add_earlier_gradients() {
  const at::NoGradGuard no_gradients;
  for (auto& [shard, earlier] : std::exchange(earlier_, {})) {
    if (!earlier.defined()) continue;
    at::Tensor& gradient = shard->tensor.mutable_grad();
    if (gradient.defined())
      gradient.add_(earlier);
    else
      gradient = std::move(earlier);
  }
}

void Hosted::end_backward() {
  in_backward_ = false;
  if (reduces_) {
    reduced_ = aside_due_ = reduces_gradients_;
    stage().finish_gradients();
    std::vector<at::Tensor> gradients;
    for (const Shard* shard : shards_)
      if (const at::Tensor& gradient = shard->tensor.grad(); gradient.defined())
        gradients.push_back(gradient);
    const at::NoGradGuard no_gradients;
    if (average_ != 1 && !gradients.empty()) at::_foreach_mul_(gradients, average_);
    add_earlier_gradients();
  }
  backward_ended_();
}

void Hosted::parameters_changed() {
  const Call one(*this);
  stage().parameters_changed(ParametersChange::updated);
}

at::Tensor Hosted::norm(double type) {
  const Call one(*this);
  auto known = norms_.find(type);
  if (known == norms_.end())
    known = norms_.emplace(type, train::GradientNorm(shards_, model_->mesh, type)).first;
  return known->second.measure();
}

std::string Hosted::next_key(const char* work) {
  return std::string("heddle.") + work + " " + std::to_string(saves_++);
}

std::vector<checkpoint::Part> Hosted::parts_of(const std::vector<State>& states) {
  std::vector<checkpoint::Part> parts;
  for (const auto& [index, prefix, tensor] : states) {
    const Shard& shard = *shards_.at(index);
    if (tensor.dim() > 0 || shard.tensor.dim() == 0)
      parts.push_back(checkpoint::part_of(shard, tensor, prefix));
    else
      parts.push_back({prefix + shard.name, tensor, {}, {}});
  }
  for (checkpoint::Part& part : checkpoint::strategy_parts(model_->stages)) parts.push_back(std::move(part));
  return parts;
}

void Hosted::save(const std::string& directory, const std::vector<State>& states, const Files& files) {
  const Call one(*this);
  Rendezvous& rendezvous = model_->mesh.rendezvous();
  const auto model = checkpoint::model_parts(model_->stages), optimizer = parts_of(states);
  const std::string any = rendezvous.meet(next_key("states"), optimizer.empty() ? "" : "1", [](auto texts) {
    std::string all;
    for (const std::string& text : texts) all += text;
    return std::vector<std::string>{all};
  });
  write_parts(rendezvous, next_key("save"), directory, model, any.empty() ? nullptr : &optimizer, files);
}

void Hosted::load(const std::string& directory, const std::vector<State>& states) {
  const Call one(*this);
  namespace fs = std::filesystem;
  const fs::path from = directory;
  checkpoint::on_every_rank(model_->mesh.rendezvous(), next_key("load"), [&] {
    checkpoint::ShardedReader model(from / "model");
    for (const checkpoint::Part& part : checkpoint::model_parts(model_->stages)) model.read(part);
    const std::vector<checkpoint::Part> parts = parts_of(states);
    if (parts.empty()) return;
    checkpoint::ShardedReader optimizer(from / "optim");
    for (const checkpoint::Part& part : parts) optimizer.read(part);
  });
  stage().parameters_changed(ParametersChange::resumed);
}

std::map<std::string, at::Tensor> Hosted::hold_whole() {
  const Call one(*this);
  std::map<std::string, at::Tensor> whole;
  for (WholeParameter& one : stage().hold_whole()) whole.emplace(one.name, one.tensor);
  return whole;
}

void Hosted::release_whole() {
  if (interpreter_lives()) stage().release_whole();
}

std::pair<std::optional<at::ScalarType>, std::optional<at::ScalarType>> Hosted::precision(size_t unit) {
  const UnitPrecision precision = stage().unit_precision(unit);
  return {precision.inputs, precision.outputs};
}

}  // namespace heddle::python
