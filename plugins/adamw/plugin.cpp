// AdamW and Adam: the keys of torch.optim's classes around the engine's fused kernels.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/plugin/optimizer.h"
#include "heddle/sdk.h"
#include "heddle/train/step.h"

namespace heddle::adamw {
namespace {

struct Fields {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  std::optional<bool> fused, foreach;
  bool amsgrad = false, maximize = false, capturable = false, differentiable = false;
  bool decoupled_weight_decay = false;  // a key of Adam alone
};

void check_betas(const Node& value) {
  const std::vector<double> betas = FieldType<std::vector<double>>::read(value);
  if (betas.size() != 2) throw Error(ErrorCode::config, value.where(), "betas must be two numbers");
  for (const double beta : betas)
    if (!(beta >= 0 && beta < 1))
      throw Error(ErrorCode::config, value.where(), "betas must be from 0 to below 1");
}

ConfigSchema<Fields> schema() {
  using F = Fields;
  return ConfigSchema<F>()
      .field("betas", &F::betas, "Decay of the two moments.",
             Check{"two numbers from 0 to below 1", check_betas})
      .field("eps", &F::eps, "Added to the root of the second moment.", at_least(0.0))
      .field("fused", &F::fused, "The kernel is always the fused one.")
      .field("foreach", &F::foreach, "The kernel is always the fused one.")
      .field("amsgrad", &F::amsgrad, "The largest second moment so far.")
      .later("amsgrad", "the fused kernel runs without it")
      .field("maximize", &F::maximize, "Go up instead of down.")
      .later("maximize", "losses are made small")
      .field("capturable", &F::capturable, "For CUDA graphs.")
      .later("capturable", "CUDA graphs come later")
      .field("differentiable", &F::differentiable, "Gradients through the update.")
      .later("differentiable", "the update is in place");
}

// The engine's optimizer with a plugin's configuration.
class Fused : public IOptimizer {
 public:
  Fused(const Fields& fields, bool decoupled) {
    AdamWConfig config;
    config.beta1 = fields.betas[0];
    config.beta2 = fields.betas[1];
    config.eps = fields.eps;
    config.decoupled = decoupled;
    inner_ = train::make_adamw(config);
  }
  void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) override {
    inner_->start(shards, mesh);
  }
  std::vector<OptimizerState> state() override { return inner_->state(); }
  void update(const OptimizerUpdate& update) override { inner_->update(update); }
  bool takes_divisor_and_skip() const override { return true; }
  bool can_undo() const override { return true; }

 private:
  std::unique_ptr<IOptimizer> inner_;
};

struct AdamW : Fused {
  explicit AdamW(const Fields& fields) : Fused(fields, /*decoupled=*/true) {}
};
struct Adam : Fused {
  explicit Adam(const Fields& fields) : Fused(fields, fields.decoupled_weight_decay) {}
};

void offer(OfferedOptimizer& offered, double weight_decay) {
  offered.weight_decay = weight_decay;
  offered.no_effect = {"fused", "foreach"};
}

}  // namespace
}  // namespace heddle::adamw

HEDDLE_PLUGIN("adamw", "0.1.0", "optimizer AdamW", "optimizer Adam") {
  using namespace heddle::adamw;
  offer(plugin.make<heddle::OfferedOptimizer, AdamW>("AdamW", schema()), 0.01);
  offer(plugin.make<heddle::OfferedOptimizer, Adam>(
            "Adam", schema().field("decoupled_weight_decay", &Fields::decoupled_weight_decay,
                                   "Decay is not added to the gradient, as in AdamW.")),
        0.0);
}
