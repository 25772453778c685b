// A family of models: a decoder in the manner of Gemma 2, of heddle's layers. It reads the config.json whose
// model_type is hello; every strategy, tensor parallelism by the plan below, and pipelines can train it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "heddle/nn/token_loss.h"
#include "heddle/sdk.h"

namespace hello_plugin {

using heddle::Batch;
using heddle::Linear;
using heddle::Module;
using heddle::RmsNorm;

// The keys of config.json and their defaults.
struct Config {
  int64_t vocab_size = 256, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2;
  int64_t num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16;
  int64_t max_position_embeddings = 1024;
  double rope_theta = 10000, rms_norm_eps = 1e-6, initializer_range = 0.02, final_logit_softcapping = 30;
  std::string dtype;
};

// Table, reader and writer of the keys in one.
const heddle::model::ModelKeys<Config>& keys() {
  const heddle::Range<int64_t> size{1, heddle::model::kLargestSize};
  static const auto all =
      heddle::model::ModelKeys<Config>()
          .field("vocab_size", &Config::vocab_size, "Tokens.", size)
          .field("hidden_size", &Config::hidden_size, "Width of the hidden states.", size)
          .field("intermediate_size", &Config::intermediate_size, "Width of the MLP.", size)
          .field("num_hidden_layers", &Config::num_hidden_layers, "Layers.",
                 heddle::Range<int64_t>{1, heddle::model::kMostLayers})
          .field("num_attention_heads", &Config::num_attention_heads, "Heads of queries.", size)
          .field("num_key_value_heads", &Config::num_key_value_heads, "Heads of keys and values.", size)
          .field("head_dim", &Config::head_dim, "Numbers of a head, an even number.", size)
          .field("max_position_embeddings", &Config::max_position_embeddings, "Longest sequence.", size)
          .field("rope_theta", &Config::rope_theta, "Base of the rotary frequencies.", heddle::at_least(1.0))
          .field("rms_norm_eps", &Config::rms_norm_eps, "Added under the root of each norm.",
                 heddle::at_least(0.0))
          .field("initializer_range", &Config::initializer_range, "Standard deviation of random weights.",
                 heddle::at_least(0.0))
          .field("final_logit_softcapping", &Config::final_logit_softcapping, "Cap of the logits; 0: none.",
                 heddle::at_least(0.0))
          .field("dtype", &Config::dtype, "Of the stored weights.")
          .unused("torch_dtype", "The older name of dtype.")
          .rule([](const Config& config) -> std::string {
            if (config.num_attention_heads % config.num_key_value_heads != 0)
              return "num_key_value_heads does not divide num_attention_heads";
            return config.head_dim % 2 == 0 ? "" : "head_dim is odd";
          });
  return all;
}

heddle::Init normal(const Config& config) {
  return {heddle::Init::Kind::normal, config.initializer_range};
}

// Its own forward computes each token alone; the core, which mixes tokens, says so itself.
constexpr heddle::TokenUse kAlone = heddle::TokenUse::each_alone;

class Attention : public Module {
 public:
  Attention(const Config& config, std::shared_ptr<heddle::Rotary> rotary, const at::TensorOptions& options)
      : rotary_(std::move(rotary)),
        q_(config.hidden_size, config.num_attention_heads * config.head_dim, Linear::Bias::none,
           normal(config), options),
        k_(config.hidden_size, config.num_key_value_heads * config.head_dim, Linear::Bias::none,
           normal(config), options),
        v_(config.hidden_size, config.num_key_value_heads * config.head_dim, Linear::Bias::none,
           normal(config), options),
        o_(config.num_attention_heads * config.head_dim, config.hidden_size, Linear::Bias::none,
           normal(config), options),
        core_(config.head_dim, {}, {config.num_attention_heads, config.num_key_value_heads}) {
    add_child("q_proj", q_);
    add_child("k_proj", k_);
    add_child("v_proj", v_);
    add_child("o_proj", o_);
    add_child("core", core_);
  }
  std::string_view kind() const override { return "attention"; }
  heddle::ModuleTraits traits() const override { return {.tokens = kAlone, .role = heddle::Role::attention}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    auto qkv = heddle::model::call_each({&q_, &k_, &v_}, x, batch);  // one gather of x under tp
    const auto [q, k] = heddle::model::rotate(qkv[0], qkv[1], rotary_->angles(batch));
    return o_.call(core_.attend(q, k, qkv[2], batch), batch);
  }

 private:
  std::shared_ptr<heddle::Rotary> rotary_;
  Linear q_, k_, v_, o_;
  heddle::AttentionCore core_;
};

class Mlp : public Module {
 public:
  Mlp(const Config& config, const at::TensorOptions& options)
      : up_(config.hidden_size, config.intermediate_size, Linear::Bias::none, normal(config), options),
        down_(config.intermediate_size, config.hidden_size, Linear::Bias::none, normal(config), options) {
    add_child("up_proj", up_);
    add_child("down_proj", down_);
  }
  std::string_view kind() const override { return "mlp"; }
  heddle::ModuleTraits traits() const override { return {.tokens = kAlone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    return down_.call(at::gelu(up_.call(std::move(x), batch), "tanh"), batch);
  }

 private:
  Linear up_, down_;
};

class Layer : public Module {
 public:
  Layer(const Config& config, const std::shared_ptr<heddle::Rotary>& rotary, const at::TensorOptions& options)
      : before_attention_(config.hidden_size, config.rms_norm_eps, options, RmsNorm::Scale::one_plus_weight),
        before_mlp_(config.hidden_size, config.rms_norm_eps, options, RmsNorm::Scale::one_plus_weight),
        attention_(config, rotary, options),
        mlp_(config, options) {
    add_child("input_layernorm", before_attention_);
    add_child("self_attn", attention_);
    add_child("post_attention_layernorm", before_mlp_);
    add_child("mlp", mlp_);
  }
  std::string_view kind() const override { return "decoder_layer"; }
  heddle::ModuleTraits traits() const override { return {.tokens = kAlone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    x = x + attention_.call(before_attention_.call(x, batch), batch);
    return x + mlp_.call(before_mlp_.call(x, batch), batch);
  }

 private:
  RmsNorm before_attention_, before_mlp_;
  Attention attention_;
  Mlp mlp_;
};

// The last norm, the head, and the loss where there are labels.
class Head : public Module {
 public:
  Head(const Config& config, const at::TensorOptions& options)
      : norm_(config.hidden_size, config.rms_norm_eps, options, RmsNorm::Scale::one_plus_weight),
        lm_head_(config.hidden_size, config.vocab_size, Linear::Bias::none, normal(config), options),
        loss_(config.final_logit_softcapping) {
    add_child("model.norm", norm_);
    add_child("lm_head", lm_head_);
    add_child("loss", loss_);
  }
  std::string_view kind() const override { return "head"; }
  heddle::ModuleTraits traits() const override { return {.tokens = kAlone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const at::Tensor hidden = norm_.call(std::move(x), batch);
    if (batch.labels.defined()) return loss_.of(hidden, lm_head_, batch);
    const at::Tensor logits = loss_.logits(hidden, lm_head_, batch);
    return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
  }

 private:
  RmsNorm norm_;
  Linear lm_head_;
  heddle::TokenLoss loss_;
};

class Spec : public heddle::ModelSpec {
 public:
  explicit Spec(Config config) : config_(std::move(config)) {}

  heddle::ModelFacts facts() const override {
    return {"hello", config_.vocab_size, config_.max_position_embeddings, config_.dtype};
  }
  heddle::Units make_units(const at::TensorOptions& options) const override;
  // A checkpoint fits a run whose keys are the same.
  std::map<std::string, std::string> signature() const override { return {{"config", config_json("")}}; }
  std::string config_json(const std::string& dtype) const override {
    return keys().config_json(config_, "hello", "HelloForCausalLM", dtype);
  }
  // Six for each weight of a product, and attention over the half of the positions that masking leaves.
  double flops_per_token(int64_t sequence) const override {
    const auto width = static_cast<double>(config_.hidden_size);
    const auto queries = static_cast<double>(config_.num_attention_heads * config_.head_dim);
    const auto key_width = static_cast<double>(config_.num_key_value_heads * config_.head_dim);
    const double layer = 2 * width * (queries + key_width + static_cast<double>(config_.intermediate_size)) +
                         queries * static_cast<double>(sequence);
    return 6 * (static_cast<double>(config_.num_hidden_layers) * layer +
                width * static_cast<double>(config_.vocab_size));
  }

 private:
  Config config_;
};

heddle::Units Spec::make_units(const at::TensorOptions& options) const {
  static const auto plan = std::make_shared<const heddle::TensorPlan>(
      heddle::TensorPlan{{"model.embed_tokens", "rowwise_rep"},
                         {"model.layers.*.self_attn.q_proj", "colwise"},
                         {"model.layers.*.self_attn.k_proj", "colwise"},
                         {"model.layers.*.self_attn.v_proj", "colwise"},
                         {"model.layers.*.self_attn.o_proj", "rowwise"},
                         {"model.layers.*.mlp.up_proj", "colwise"},
                         {"model.layers.*.mlp.down_proj", "rowwise"},
                         {"lm_head", "colwise_rep"}});
  heddle::Units units;
  const auto add = [&](const std::string& name, const std::string& prefix, std::unique_ptr<Module> module) {
    auto unit = std::make_unique<heddle::ModuleUnit>(name, prefix, std::move(module));
    unit->set_tensor_plan(plan);
    units.push_back(std::move(unit));
  };
  add("model.embed_tokens", "model.embed_tokens",
      std::make_unique<heddle::Embedding>(config_.vocab_size, config_.hidden_size, -1, normal(config_),
                                          options));
  const auto rotary =
      std::make_shared<heddle::Rotary>(config_.head_dim, config_.rope_theta, heddle::RotaryScaling());
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    add(name, name, std::make_unique<Layer>(config_, rotary, options));
  }
  add("lm_head", "", std::make_unique<Head>(config_, options));
  return units;
}

class Family : public heddle::IModelFamily {
 public:
  std::unique_ptr<heddle::ModelSpec> read(const heddle::Node& given,
                                          heddle::UnknownKeys unknown) const override {
    Config config = keys().read(given, unknown);
    if (config.dtype.empty()) config.dtype = heddle::model::text_or(given, "torch_dtype", "");
    return std::make_unique<Spec>(std::move(config));
  }
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "model hello") {
  plugin.model<hello_plugin::Family>("hello", hello_plugin::keys());
}
