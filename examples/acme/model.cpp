// Units of the model. Each layer has an auxiliary loss and a metric.
#include "model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

#include <sstream>
#include <string>
#include <utility>

#include "heddle/model/module_unit.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/token_loss.h"

namespace acme {
namespace {

using heddle::Batch;
using heddle::Linear;
using heddle::Module;
namespace model = heddle::model;

constexpr double kEpsilon = 1e-5;
constexpr heddle::Init kNormal{heddle::Init::Kind::normal, 0.2};

struct Shape {
  int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, max_position_embeddings;
};

// The metric covers only tokens with a label, like the loss, so padding changes neither.
class Layer : public Module {
 public:
  Layer(const Shape& shape, const at::TensorOptions& options)
      : norm_(shape.hidden_size, kEpsilon, options),
        up_(shape.hidden_size, shape.intermediate_size, Linear::Bias::none, kNormal, options),
        down_(shape.intermediate_size, shape.hidden_size, Linear::Bias::none, kNormal, options) {
    add_child("norm", norm_);
    add_child("up_proj", up_);
    add_child("down_proj", down_);
    add_side_output(activation_);
    add_side_output(largest_);
  }
  std::string_view kind() const override { return "acme_layer"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const at::Tensor inside = at::silu(up_.call(norm_.call(x, batch), batch));
    const at::Tensor y = x + down_.call(inside, batch);
    return batch.labels.defined() ? regularised(y, inside, batch) : y;
  }

 private:
  // Penalty of large activations (Merity et al. 2017): a mean over the tokens with a label.
  at::Tensor regularised(const at::Tensor& y, const at::Tensor& inside, const Batch& batch) const {
    const at::Tensor counts = batch.labels.reshape({-1}).ne(Batch::kIgnore).to(inside.scalar_type());
    largest_.add((inside.detach().abs().amax(-1) * counts).max(), batch);
    return activation_.add(y, 0.1 * (inside.square().mean(-1) * counts).sum(), batch);
  }

  heddle::RmsNorm norm_;
  Linear up_, down_;
  heddle::AuxiliaryLoss activation_{"acme/activation"};
  heddle::Metric largest_{"acme/largest", heddle::Combine::max};
};

class Head : public Module {
 public:
  Head(const Shape& shape, const at::TensorOptions& options)
      : norm_(shape.hidden_size, kEpsilon, options),
        lm_head_(shape.hidden_size, shape.vocab_size, Linear::Bias::none, kNormal, options) {
    add_child("norm", norm_);
    add_child("lm_head", lm_head_);
    add_child("loss", loss_);
  }
  std::string_view kind() const override { return "acme_head"; }
  heddle::ModuleTraits traits() const override { return {.tokens = heddle::TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    const at::Tensor hidden = norm_.call(std::move(x), batch);
    if (batch.labels.defined()) return loss_.of(hidden, lm_head_, batch);
    const at::Tensor logits = lm_head_.call(hidden, batch);
    return logits.view({batch.tokens.size(0), -1, logits.size(-1)});
  }

 private:
  heddle::RmsNorm norm_;
  Linear lm_head_;
  heddle::TokenLoss loss_;
};

class Spec : public heddle::ModelSpec {
 public:
  Spec(const Shape& shape, std::string dtype) : shape_(shape), dtype_(std::move(dtype)) {}

  heddle::ModelFacts facts() const override {
    return {"acme", shape_.vocab_size, shape_.max_position_embeddings, dtype_};
  }
  heddle::Units make_units(const at::TensorOptions& options) const override {
    heddle::Units units;
    const auto add = [&](const std::string& name, std::unique_ptr<Module> module) {
      units.push_back(std::make_unique<heddle::ModuleUnit>(name, name, std::move(module)));
    };
    add("embed_tokens",
        std::make_unique<heddle::Embedding>(shape_.vocab_size, shape_.hidden_size, -1, kNormal, options));
    for (int64_t i = 0; i < shape_.num_hidden_layers; ++i)
      add("layers." + std::to_string(i), std::make_unique<Layer>(shape_, options));
    add("head", std::make_unique<Head>(shape_, options));
    return units;
  }
  std::map<std::string, std::string> signature() const override { return {{"shape", config_json("")}}; }
  std::string config_json(const std::string& dtype) const override {
    std::ostringstream out;
    out << "{\"model_type\": \"acme\", \"vocab_size\": " << shape_.vocab_size
        << ", \"hidden_size\": " << shape_.hidden_size
        << ", \"intermediate_size\": " << shape_.intermediate_size
        << ", \"num_hidden_layers\": " << shape_.num_hidden_layers
        << ", \"max_position_embeddings\": " << shape_.max_position_embeddings;
    if (!dtype.empty()) out << ", \"dtype\": \"" << dtype << "\"";
    out << "}\n";
    return out.str();
  }
  double flops_per_token(int64_t) const override {
    return 6.0 * static_cast<double>(shape_.hidden_size) *
           static_cast<double>(2 * shape_.intermediate_size * shape_.num_hidden_layers + shape_.vocab_size);
  }

 private:
  Shape shape_;
  std::string dtype_;
};

int64_t layers_of(const heddle::Node& given) {
  const int64_t layers = model::integer_or(given, "num_hidden_layers", 2);
  if (layers < 0 || layers > model::kMostLayers)
    model::refuse(*given.find("num_hidden_layers"), "expected 0 to " + std::to_string(model::kMostLayers) +
                                                        " layers, got " + std::to_string(layers));
  return layers;
}

}  // namespace

std::vector<heddle::FieldInfo> keys() {
  return {
      {"vocab_size", "int", "256", "1..2^28", "Vocabulary size.", ""},
      {"hidden_size", "int", "64", "1..2^28", "Hidden size.", ""},
      {"intermediate_size", "int", "128", "1..2^28", "Inner width of a layer.", ""},
      {"num_hidden_layers", "int", "2", "0..100000", "Number of layers.", ""},
      {"max_position_embeddings", "int", "1024", "1..2^28", "Maximum sequence length.", ""},
      {"dtype", "str", "null", "", "Dtype of the stored weights.", ""},
  };
}

std::unique_ptr<heddle::ModelSpec> Family::read(const heddle::Node& given,
                                                heddle::UnknownKeys unknown) const {
  model::check_keys(given, keys(), unknown);
  const Shape shape{model::size_or(given, "vocab_size", 256), model::size_or(given, "hidden_size", 64),
                    model::size_or(given, "intermediate_size", 128), layers_of(given),
                    model::size_or(given, "max_position_embeddings", 1024)};
  return std::make_unique<Spec>(shape, model::text_or(given, "dtype", ""));
}

}  // namespace acme
