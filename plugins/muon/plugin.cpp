// Entry point of the plugin muon, and its schema.
#include <algorithm>

#include "heddle/sdk.h"
#include "muon.h"

namespace heddle::muon {
namespace {

void check_betas(const Node& value) {
  if (value.is_null()) return;
  const std::vector<double> betas = FieldType<std::vector<double>>::read(value);
  if (betas.size() != 2 ||
      std::any_of(betas.begin(), betas.end(), [](double b) { return !(b >= 0 && b < 1); }))
    throw Error(ErrorCode::config, value.where(),
                "expected two numbers from 0 to below 1, got " + value.written());
}

}  // namespace

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("mu", &Config::mu, "Decay rate of a matrix's momentum.", Range<double>{0, 1})
      .field("betas", &Config::betas,
             "Decay rates of AdamW's two moments, for parameters that are not matrices.",
             Check{"two numbers from 0 to below 1", check_betas})
      .field("epsilon", &Config::epsilon,
             "Term added to a matrix's norm, and to the square root of AdamW's second moment.", at_least(0.0))
      .field("nesterov", &Config::nesterov, "Use Nesterov momentum.")
      .field("adjust_lr", &Config::adjust_lr,
             "Factor of a matrix's learning rate. spectral_norm: sqrt(rows / columns); rms_norm: 0.2 "
             "sqrt(max(rows, columns)); null: 1.",
             OneOf{{"spectral_norm", "rms_norm"}})
      .field("scalar_betas", &Config::scalar_betas,
             "Decay rates of AdamW's moments. Overrides betas. null: betas.",
             Check{"two numbers from 0 to below 1", check_betas})
      .field("scalar_eps", &Config::scalar_eps, "Epsilon of AdamW. Overrides epsilon. null: epsilon.",
             at_least(0.0))
      .field("use_triton", &Config::use_triton, "Ignored: heddle has its own kernel.")
      .field("scalar_opt", &Config::scalar_opt, "Optimizer of the other parameters.",
             OneOf{{"adamw", "lion"}})
      .later("scalar_opt", "Lion is not built yet")
      .field("scalar_lr", &Config::scalar_lr, "Learning rate of parameters that are not matrices. null: lr.",
             at_least(0.0))
      .field("embed_lr", &Config::embed_lr, "Learning rate of embeddings. null: scalar_lr, else lr.",
             at_least(0.0))
      .field("lm_head_lr", &Config::lm_head_lr, "Learning rate of the head. null: lr / sqrt(columns).",
             at_least(0.0))
      .field("flatten", &Config::flatten, "Treat parameters of three and more dims as matrices.")
      .later("flatten", "AdamW updates parameters of three and more dims");
}

}  // namespace heddle::muon

HEDDLE_PLUGIN("muon", "0.1.0", "optimizer Muon") {
  auto& muon = plugin.optimizer<heddle::muon::Muon>("Muon", heddle::muon::schema());
  muon.lr = 5e-4;
  muon.rate_keys = {"scalar_lr", "embed_lr", "lm_head_lr"};
}
