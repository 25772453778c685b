// AdamW, Adam, FusedAdam and FlashAdamW: the configurations of torch.optim, Transformer Engine and flashoptim
// for the engine's fused kernels.
#include <memory>
#include <optional>
#include <string>
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
  bool decoupled_weight_decay = false;  // a key of Adam only
  // Keys of FusedAdam only.
  bool adam_w_mode = true, bias_correction = true, store_param_remainders = false;
  std::string exp_avg_dtype = "float32", exp_avg_sq_dtype = "float32";
  std::optional<int64_t> master_weight_bits = 24;  // a key of FlashAdamW only
};

void check_betas(const Node& value) {
  const std::vector<double> betas = FieldType<std::vector<double>>::read(value);
  if (betas.size() != 2)
    throw Error(ErrorCode::config, value.where(),
                "betas must be 2 numbers, but the list has " + std::to_string(betas.size()),
                "write for example betas: [0.9, 0.999]");
  for (const double beta : betas)
    if (!(beta >= 0 && beta < 1))
      throw Error(ErrorCode::config, value.where(), "betas must be at least 0 and below 1");
}

void check_bits(const Node& value) {
  if (value.is_null() || value.as_integer() == 24 || value.as_integer() == 32) return;
  throw Error(ErrorCode::config, value.where(),
              "master_weight_bits must be 24, 32 or null, got " + value.written());
}

ConfigSchema<Fields> schema() {
  using F = Fields;
  return ConfigSchema<F>()
      .field("betas", &F::betas, "Decay rates of the first and the second moment.",
             Check{"two numbers from 0 to below 1", check_betas})
      .field("eps", &F::eps, "Term added to the square root of the second moment.", at_least(0.0))
      .field("fused", &F::fused, "Ignored: the fused kernel always runs.")
      .field("foreach", &F::foreach, "Ignored: the fused kernel always runs.")
      .field("amsgrad", &F::amsgrad, "Divide by the largest second moment so far (AMSGrad).")
      .later("amsgrad", "the fused kernel has no AMSGrad")
      .field("maximize", &F::maximize, "Maximize the objective instead of minimizing it.")
      .later("maximize", "heddle minimizes the loss")
      .field("capturable", &F::capturable, "Capture the step in a CUDA graph.")
      .later("capturable", "CUDA graphs are not built yet")
      .field("differentiable", &F::differentiable, "Record the update for autograd.")
      .later("differentiable", "the update is in place");
}

// Accepts torch.float32 and float32.
bool is_float32(const std::string& word) {
  return word == "float32" || word == "torch.float32";
}

// Keys of Transformer Engine's FusedAdam.
ConfigSchema<Fields> fused_adam_schema() {
  using F = Fields;
  return schema()
      .field("adam_w_mode", &F::adam_w_mode,
             "Decoupled weight decay, as in AdamW. false: weight decay is added to the gradient, as in Adam.")
      .field("bias_correction", &F::bias_correction, "Correct the bias of the two moments.")
      .later("bias_correction", "the bias of the moments is always corrected")
      .field("store_param_remainders", &F::store_param_remainders,
             "Keep the lower 16 bits of a float32 copy beside each bfloat16 parameter. Results equal those "
             "of master_weights.")
      .field("exp_avg_dtype", &F::exp_avg_dtype, "Dtype of the first moment.")
      .later("exp_avg_dtype", "moments have the dtype of the weights that the optimizer updates",
             [](const F& given) { return is_float32(given.exp_avg_dtype); })
      .field("exp_avg_sq_dtype", &F::exp_avg_sq_dtype, "Dtype of the second moment.")
      .later("exp_avg_sq_dtype", "moments have the dtype of the weights that the optimizer updates",
             [](const F& given) { return is_float32(given.exp_avg_sq_dtype); });
}

// Keys of flashoptim's FlashAdamW.
ConfigSchema<Fields> flash_schema() {
  return schema().field("master_weight_bits", &Fields::master_weight_bits,
                        "Bits of the master weights of bfloat16 parameters. heddle stores them as float32, "
                        "as master_weights does. null: no master weights.",
                        Check{"24, 32 or null", check_bits});
}

// An optimizer of the engine with the configuration of this plugin.
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

struct FusedAdam : Fused {
  explicit FusedAdam(const Fields& fields) : Fused(fields, fields.adam_w_mode) {}
};

void offer(OfferedOptimizer& offered, double weight_decay) {
  offered.weight_decay = weight_decay;
  offered.no_effect = {"fused", "foreach"};
}

}  // namespace
}  // namespace heddle::adamw

HEDDLE_PLUGIN("adamw", "0.1.0", "optimizer AdamW", "optimizer Adam", "optimizer FusedAdam",
              "optimizer FlashAdamW") {
  using namespace heddle::adamw;
  offer(plugin.optimizer<AdamW>("AdamW", schema()), 0.01);
  offer(plugin.optimizer<Adam>(
            "Adam",
            schema().field("decoupled_weight_decay", &Fields::decoupled_weight_decay,
                           "Decoupled weight decay, as in AdamW, instead of adding it to the gradient.")),
        0.0);
  offer(plugin.optimizer<FusedAdam>("FusedAdam", fused_adam_schema()), 0.0);
  auto& flash = plugin.optimizer<AdamW>("FlashAdamW", flash_schema());
  offer(flash, 0.01);
  flash.master_weights_key = "master_weight_bits";
}
