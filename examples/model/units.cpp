// Modules of GPT-2: heddle's layers, and two layers that heddle does not have.
#include "units.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"

namespace gpt2 {
namespace {

using heddle::Batch;
using heddle::Embedding;
using heddle::Init;
using heddle::Linear;
using heddle::Module;
using heddle::ModuleUnit;

// Initialization of a layer. Layers whose output is added to the hidden states get smaller values (section
// 2.3 of the paper).
Init normal(const Config& config, bool onto_residual = false) {
  const double std = config.initializer_range;
  return {Init::Kind::normal,
          onto_residual ? std / std::sqrt(2.0 * static_cast<double>(config.n_layer)) : std};
}

class LayerNorm : public Module {
 public:
  LayerNorm(int64_t width, double epsilon, const at::TensorOptions& options)
      : weight(at::empty({width}, options)), bias(at::empty({width}, options)), epsilon_(epsilon) {
    weight.fill_(1).set_requires_grad(true);
    bias.zero_().set_requires_grad(true);
    add_slot("weight", weight, {Init::Kind::ones, 0});
    add_slot("bias", bias, {Init::Kind::zeros, 0});
  }
  std::string_view kind() const override { return "layer_norm"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }

  at::Tensor weight, bias;

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon_);
  }

 private:
  double epsilon_;
};

// Queries, keys and values of all heads in one projection. Plans cannot split it: splitting its rows would
// give one rank the queries and another the values, so it stays whole.
class FusedLinear : public Linear {
 public:
  using Linear::Linear;
  std::string_view kind() const override { return "fused_linear"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
};

class Attention : public Module {
 public:
  Attention(const Config& config, const at::TensorOptions& options)
      : width_(config.n_embd),
        c_attn_(width_, 3 * width_, Linear::Bias::zeros, normal(config), options),
        c_proj_(width_, width_, Linear::Bias::zeros, normal(config, true), options),
        core_(width_ / config.n_head) {
    add_child("c_attn", c_attn_);
    add_child("c_proj", c_proj_);
    add_child("core", core_);
  }
  std::string_view kind() const override { return "attention"; }
  heddle::ModuleTraits traits() const override {
    return {.tokens = heddle::TokenUse::each_alone, .role = heddle::Role::attention};
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    std::vector<at::Tensor> qkv = c_attn_.call(std::move(x), batch).split(width_, 1);
    return c_proj_.call(core_.attend(qkv[0], qkv[1], qkv[2], batch), batch);
  }

 private:
  int64_t width_;
  FusedLinear c_attn_;
  Linear c_proj_;
  heddle::AttentionCore core_;
};

class Mlp : public Module {
 public:
  Mlp(const Config& config, const at::TensorOptions& options)
      : c_fc_(config.n_embd, config.n_inner, Linear::Bias::zeros, normal(config), options),
        c_proj_(config.n_inner, config.n_embd, Linear::Bias::zeros, normal(config, true), options) {
    add_child("c_fc", c_fc_);
    add_child("c_proj", c_proj_);
  }
  std::string_view kind() const override { return "mlp"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    return c_proj_.call(at::gelu(c_fc_.call(std::move(x), batch), "tanh"), batch);
  }

 private:
  Linear c_fc_, c_proj_;
};

class Layer : public Module {
 public:
  Layer(const Config& config, const at::TensorOptions& options)
      : ln_1_(config.n_embd, config.layer_norm_epsilon, options),
        ln_2_(config.n_embd, config.layer_norm_epsilon, options),
        attn_(config, options),
        mlp_(config, options) {
    add_child("ln_1", ln_1_);
    add_child("attn", attn_);
    add_child("ln_2", ln_2_);
    add_child("mlp", mlp_);
  }
  std::string_view kind() const override { return "decoder_layer"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    x = x + attn_.call(ln_1_.call(x, batch), batch);
    return x + mlp_.call(ln_2_.call(x, batch), batch);
  }

 private:
  LayerNorm ln_1_, ln_2_;
  Attention attn_;
  Mlp mlp_;
};

// Sum of a token embedding and a position embedding.
class Embeddings : public Module {
 public:
  Embeddings(const Config& config, const at::TensorOptions& options)
      : wte_(config.vocab_size, config.n_embd, -1, normal(config), options),
        wpe_(config.n_positions, config.n_embd, -1, normal(config), options) {
    add_child("wte", wte_);
    add_child("wpe", wpe_);
  }
  std::string_view kind() const override { return "embeddings"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  const at::Tensor& table() const { return wte_.weight; }

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override {
    // Looks up both tables per token, because with sequence parallelism each rank has its own tokens.
    const at::Tensor positions = heddle::positions_of(batch).expand_as(tokens);
    return wte_.call(tokens, batch) + wpe_.call(positions, batch);
  }

 private:
  Embedding wte_, wpe_;
};

// Final norm, head, and the loss if there are labels.
class Head : public Module {
 public:
  Head(const Config& config, const at::TensorOptions& options)
      : norm_(config.n_embd, config.layer_norm_epsilon, options),
        lm_head_(config.n_embd, config.vocab_size, Linear::Bias::none, normal(config), options) {
    add_child("transformer.ln_f", norm_);
    add_child("lm_head", lm_head_);
    add_child("loss", loss_);
  }
  std::string_view kind() const override { return "head"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  void share(const at::Tensor& table) { lm_head_.weight = table; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const at::Tensor hidden = norm_.call(std::move(x), batch);
    if (batch.labels.defined()) return loss_.of(hidden, lm_head_, batch);
    at::Tensor logits = lm_head_.call(hidden, batch);
    return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
  }

 private:
  LayerNorm norm_;
  Linear lm_head_;
  heddle::TokenLoss loss_;
};

}  // namespace

heddle::Units make_units(const Config& config, const at::TensorOptions& options) {
  static const auto plan =
      std::make_shared<const heddle::TensorPlan>(heddle::TensorPlan{{"transformer.wte", "rowwise_rep"},
                                                                    {"transformer.h.*.mlp.c_fc", "colwise"},
                                                                    {"transformer.h.*.mlp.c_proj", "rowwise"},
                                                                    {"lm_head", "colwise"}});
  heddle::Units units;
  const auto add = [&](const std::string& name, const std::string& prefix, std::unique_ptr<Module> module) {
    auto unit = std::make_unique<ModuleUnit>(name, prefix, std::move(module));
    unit->set_tensor_plan(plan);
    units.push_back(std::move(unit));
    return static_cast<ModuleUnit*>(units.back().get());
  };
  auto embeddings = std::make_unique<Embeddings>(config, options);
  auto head = std::make_unique<Head>(config, options);
  if (config.tie_word_embeddings) head->share(embeddings->table());
  add("transformer.embeddings", "transformer", std::move(embeddings));
  for (int64_t i = 0; i < config.n_layer; ++i) {
    const std::string name = "transformer.h." + std::to_string(i);
    add(name, name, std::make_unique<Layer>(config, options));
  }
  ModuleUnit* last = add("lm_head", "", std::move(head));
  if (config.tie_word_embeddings) last->tie("lm_head.weight", "transformer.wte.weight");
  return units;
}

}  // namespace gpt2
