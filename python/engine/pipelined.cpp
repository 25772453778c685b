// Units that call Python, and the steps of a pipeline.
#include "pipelined.h"

#include <utility>

#include "heddle/checkpoint/sharded.h"

namespace heddle::python {
namespace {

class PieceUnit final : public Unit, public UnitBuffers {
 public:
  PieceUnit(GivenPiece given, std::shared_ptr<std::exception_ptr> fault)
      : given_(std::move(given)), fault_(std::move(fault)) {}
  std::string_view name() const override { return given_.unit.name; }
  Module* module() override { return nullptr; }
  std::vector<ParameterSlot> parameters() override {
    std::vector<ParameterSlot> out;
    for (auto& [name, tensor] : given_.unit.parameters) out.push_back({name, &tensor, {}, true});
    return out;
  }
  std::vector<at::Tensor> buffers() override { return given_.unit.buffers; }
  Tensors forward(Tensors inputs, const Batch& batch) override {
    try {
      return given_.forward(std::move(inputs), batch);
    } catch (...) {
      *fault_ = std::current_exception();
      throw;
    }
  }

 private:
  GivenPiece given_;
  std::shared_ptr<std::exception_ptr> fault_;
};

}  // namespace

Pipelined::Pipelined(std::shared_ptr<World> world, const std::string& configuration,
                     const std::string& origin, std::vector<GivenPiece> pieces, const StepConfig& config)
    : world_(std::move(world)) {
  engine::ModelHost host{.rendezvous = world_->rendezvous(), .make_units = [&](const Setup&) {
                           Units units;
                           for (GivenPiece& piece : pieces)
                             units.push_back(std::make_unique<PieceUnit>(std::move(piece), fault_));
                           return units;
                         }};
  model_ = std::make_unique<engine::Model>(
      engine::model(read_configuration(configuration, origin), world_->plugins(), host));
  step_ = std::make_unique<Step>(model_->stages, model_->mesh, config);
}

Pipelined::~Pipelined() {
  if (interpreter_lives()) return;
  (void)step_.release();
  (void)model_.release();
  (void)new std::shared_ptr<World>(std::move(world_));
}

template <class Work>
auto Pipelined::with_faults(Work&& work) {
  const OneCall one(busy_, "heddle.pipeline");
  *fault_ = nullptr;
  try {
    return work();
  } catch (...) {
    if (*fault_) std::rethrow_exception(std::exchange(*fault_, nullptr));
    throw;
  }
}

std::pair<double, double> Pipelined::step(const std::vector<Batch>& batches, double lr, double weight_decay) {
  return with_faults([&] {
    const StepReport report = step_->run(batches, lr, weight_decay);
    step_->settle();
    return std::pair(report.loss.item<double>(), report.grad_norm.item<double>());
  });
}

double Pipelined::evaluate(const std::vector<Batch>& batches) {
  return with_faults([&] { return step_->evaluate(batches).loss.item<double>(); });
}

void Pipelined::save(const std::string& directory, const Files& files) {
  const OneCall one(busy_, "heddle.pipeline");
  std::vector<checkpoint::Part> states = engine::optimizer_parts(*step_);
  for (checkpoint::Part& part : checkpoint::strategy_parts(model_->stages)) states.push_back(std::move(part));
  write_parts(model_->mesh.rendezvous(), "pipeline save " + std::to_string(saves_++), directory,
              checkpoint::model_parts(model_->stages), &states, files);
}

void Pipelined::load(const std::string& directory) {
  const OneCall one(busy_, "heddle.pipeline");
  checkpoint::on_every_rank(model_->mesh.rendezvous(), "pipeline load " + std::to_string(saves_++), [&] {
    checkpoint::ShardedReader model(std::filesystem::path(directory) / "model");
    for (const checkpoint::Part& part : checkpoint::model_parts(model_->stages)) model.read(part);
    checkpoint::ShardedReader optimizer(std::filesystem::path(directory) / "optim");
    for (const checkpoint::Part& part : engine::optimizer_parts(*step_)) optimizer.read(part);
    for (const checkpoint::Part& part : checkpoint::strategy_parts(model_->stages)) optimizer.read(part);
  });
  for (const auto& stage : model_->stages) stage->parameters_changed(ParametersChange::resumed);
}

}  // namespace heddle::python
