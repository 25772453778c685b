// A small decoder of heddle's layers, right without HEDDLE_FAULT. Each fault breaks one sentence of
// heddle/model/*.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "fault.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "heddle/sdk.h"

namespace {

using faults::is;
using heddle::Batch;
using heddle::Init;
using heddle::Linear;
using heddle::Module;
using heddle::ModuleUnit;

constexpr int64_t kHeads = 2;

struct Config {
  int64_t vocab_size = 29, hidden_size = 12, num_layers = 2, max_positions = 32;
  double scale = 0.5;
  std::string dtype;
};

struct WrongTanh : torch::autograd::Function<WrongTanh> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor y = at::tanh(x);
    context->save_for_backward({y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (is("backward_throws")) throw std::runtime_error("no workspace for a gradient");
    const at::Tensor y = context->get_saved_variables()[0];
    return {gradients[0] * (1 - y * y) * (is("wrong_gradient") ? 1.1 : 1.0)};
  }
};

class Layer : public Module {
 public:
  Layer(const Config& config, const at::TensorOptions& options)
      : config_(config),
        q(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        k(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        v(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        o(config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        up(config.hidden_size, 2 * config.hidden_size, Linear::Bias::zeros, Init{}, options),
        down(2 * config.hidden_size, config.hidden_size, Linear::Bias::none, Init{}, options),
        core(config.hidden_size / kHeads),
        gain(at::empty({config.hidden_size}, options)) {
    gain.fill_(1).set_requires_grad(true);
    add_child("q", q);
    add_child("k", k);
    add_child("v", v);
    add_child("o", o);
    if (!is("child_not_registered")) add_child("up", up);
    add_child("down", down);
    if (!is("core_not_registered")) add_child("core", core);
    if (!is("slot_not_registered")) add_slot("gain", gain, {Init::Kind::ones, 0});
  }
  std::string_view kind() const override { return "decoder_layer"; }
  heddle::ModuleTraits traits() const override {
    return {.tokens = is("says_that_it_mixes") ? heddle::TokenUse::mixes : heddle::TokenUse::each_alone};
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    if (is("throws_in_forward")) throw std::out_of_range("table of layers");
    if (is("loops_in_forward"))
      for (;;) {
      }
    if (is("changes_tokens")) batch.tokens.fill_(1);
    if (is("keeps_state")) x = x * (1 + 0.01 * static_cast<double>(++calls_));
    if (is("is_random")) x = x + 0.1 * at::rand_like(x);
    x = x + o.call(core.attend(q.call(x, batch), k.call(x, batch), v.call(x, batch), batch), batch);
    if (is("mixes_tokens") || is("says_that_it_mixes")) {
      const at::Tensor rows = x.view({batch.tokens.size(0), -1, x.size(-1)});
      x = x + at::cat({at::zeros_like(rows.narrow(1, 0, 1)), rows.narrow(1, 0, rows.size(1) - 1)}, 1)
                  .reshape(x.sizes());
    }
    const at::Tensor inner = WrongTanh::apply(up.call(is("unused_slot") ? x : x * gain, batch));
    const double scale = is("key_ignored") ? 0.5 : config_.scale;
    return x + scale * down.call(is("detaches") ? inner.detach() : inner, batch);
  }

 private:
  Config config_;
  Linear q, k, v, o, up, down;
  heddle::AttentionCore core;
  at::Tensor gain;
  int64_t calls_ = 0;
};

class First : public Module {
 public:
  First(const Config& config, const at::TensorOptions& options)
      : table(config.vocab_size, config.hidden_size, -1, Init{}, options) {
    add_child("table", table);
  }
  std::string_view kind() const override { return "embeddings"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  heddle::Embedding table;

 protected:
  at::Tensor forward(at::Tensor tokens, const Batch& batch) override { return table.call(tokens, batch); }
};

class Last : public Module {
 public:
  Last(const Config& config, const at::TensorOptions& options)
      : head(config.hidden_size, config.vocab_size, Linear::Bias::none, Init{}, options) {
    add_child("head", head);
    add_child("loss", loss);
  }
  std::string_view kind() const override { return "head"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }
  const at::Tensor* table = nullptr;

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    if (table != nullptr) x = x + table->mean();
    if (!batch.labels.defined()) {
      const at::Tensor logits = head.call(x, batch);
      return is("logits_of_one_row") ? logits.narrow(0, 0, 1)
                                     : logits.view({batch.tokens.size(0), -1, logits.size(-1)});
    }
    Batch all = batch;
    if (is("counts_ignored")) all.labels = batch.labels.clamp_min(0);
    at::Tensor sum = loss.of(x, head, all);
    if (is("mean_loss")) sum = sum / static_cast<double>(batch.tokens.numel());
    return is("many_losses") ? at::cat({sum.view({1}), sum.view({1})}) * 0.5 : sum;
  }

 private:
  Linear head;
  heddle::TokenLoss loss;
};

heddle::TensorPlan plan() {
  heddle::TensorPlan out = {{"layers.*.up", "colwise"}, {"layers.*.down", "rowwise"}};
  if (is("pattern_matches_nothing")) out.emplace_back("layers.*.gate_proj", "colwise");
  if (is("plan_is_wrong"))
    out = {{"layers.*.up", "colwise_rep"}, {"layers.*.down", "colwise"}, {"layers.*.q", "colwise"}};
  return out;
}

class Spec : public heddle::ModelSpec {
 public:
  explicit Spec(Config config) : config_(std::move(config)) {}
  heddle::ModelFacts facts() const override {
    if (is("throws_in_facts")) throw std::runtime_error("no facts");
    return {"faulty", config_.vocab_size + (is("vocabulary_too_large") ? 9 : 0), config_.max_positions,
            config_.dtype};
  }
  heddle::Units make_units(const at::TensorOptions& given) const override {
    if (is("throws_in_make_units")) throw std::runtime_error("no units");
    at::TensorOptions options = given;
    if (is("dtype_ignored")) options = options.dtype(at::kFloat);
    if (is("device_ignored")) options = options.device(at::kCPU);
    heddle::Units units;
    const auto all = std::make_shared<const heddle::TensorPlan>(plan());
    const auto add = [&](const std::string& name, std::unique_ptr<Module> module) {
      auto unit = std::make_unique<ModuleUnit>(name, name, std::move(module));
      unit->set_tensor_plan(
          is("plan_of_one_unit") && !units.empty() ? std::make_shared<const heddle::TensorPlan>() : all);
      units.push_back(std::move(unit));
    };
    auto first = std::make_unique<First>(config_, options);
    auto last = std::make_unique<Last>(config_, options);
    if (is("uses_another_units_parameter")) last->table = &first->table.weight;
    add("embed", std::move(first));
    for (int64_t i = 0; i < config_.num_layers; ++i)
      add(is("units_of_one_name") ? "layers.0" : "layers." + std::to_string(i),
          std::make_unique<Layer>(config_, options));
    add("last", std::move(last));
    return units;
  }
  std::map<std::string, std::string> signature() const override {
    if (is("no_signature")) return {};
    return {{"hidden_size", std::to_string(config_.hidden_size)},
            {"num_layers", std::to_string(config_.num_layers)},
            {"vocab_size", std::to_string(config_.vocab_size)}};
  }
  std::string config_json(const std::string& dtype) const override {
    std::string out = "{\"model_type\": \"faulty\", \"vocab_size\": " + std::to_string(config_.vocab_size) +
                      ", \"hidden_size\": " + std::to_string(config_.hidden_size) +
                      ", \"num_layers\": " + std::to_string(config_.num_layers) +
                      ", \"max_positions\": " + std::to_string(config_.max_positions);
    if (!is("key_is_not_written")) out += ", \"scale\": " + std::to_string(config_.scale);
    if (!is("dtype_is_not_written")) out += ", \"dtype\": \"" + dtype + "\"";
    return out + (is("no_json") ? "" : "}");
  }
  double flops_per_token(int64_t sequence) const override {
    return is("no_flops") ? 0 : 6000.0 + static_cast<double>(sequence);
  }
  heddle::StoredParts stored(const std::string& name, std::span<const int64_t> shape) const override {
    const bool table = name == "embed.table.weight", head = name == "last.head.weight";
    if (is("stored_overlap") && (table || head))  // the second half of each, and never the first
      return heddle::stored::slice("both", shape, 0, table ? 0 : 5, 2 * shape[0]);
    if (is("stored_leaves_a_gap") && table) return heddle::stored::slice("table", shape, 0, 1, shape[0] + 2);
    if (is("stored_twice") && table) return heddle::stored::whole("last.head.weight", shape);
    return {};
  }

 private:
  Config config_;
};

std::vector<heddle::FieldInfo> keys() {
  return {{"vocab_size", "int", "29", "1..1000", "Tokens.", ""},
          {"hidden_size", "int", "12", "a multiple of 4", "Width.", ""},
          {"num_layers", "int", "2", "1..100", "Layers.", ""},
          {"max_positions", "int", "32", "1..1000", "Longest sequence.", ""},
          {"scale", "float", "0.5", "above 0", "Factor of each MLP.", ""},
          {"dtype", "str", "null", "", "Of the stored weights.", ""}};
}

class Family : public heddle::IModelFamily {
 public:
  std::unique_ptr<heddle::ModelSpec> read(const heddle::Node& given,
                                          heddle::UnknownKeys unknown) const override {
    if (is("throws_in_read")) throw std::runtime_error("no table of keys");
    namespace model = heddle::model;
    model::check_keys(given, keys(), unknown);
    Config config;
    config.vocab_size = model::size_or(given, "vocab_size", config.vocab_size);
    config.hidden_size = model::size_or(given, "hidden_size", config.hidden_size);
    config.num_layers = model::size_or(given, "num_layers", config.num_layers, 100);
    config.max_positions = model::size_or(given, "max_positions", config.max_positions);
    config.scale = model::real_or(given, "scale", config.scale);
    config.dtype = model::text_or(given, "dtype", "");
    if (config.hidden_size % 4 != 0)
      model::refuse(*given.find("hidden_size"), "hidden_size is no multiple of 4");
    return std::make_unique<Spec>(config);
  }
};

}  // namespace

HEDDLE_PLUGIN("faulty_model", "0.1.0", "model faulty") {
  plugin.model<Family>("faulty", keys());
}
