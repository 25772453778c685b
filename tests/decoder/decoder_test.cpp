// Each form of a decoder equals plain operators, with the gradient of every parameter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "decoder/plain_decoder.h"
#include "heddle/decoder/family.h"
#include "heddle/model/slot.h"
#include "lib/run/generate/generate.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using decoder::Activation;
using decoder::Attention;
using decoder::Layer;
using decoder::Mlp;
using decoder::Norm;

constexpr int64_t kTokens = 13, kWidth = 12, kLength = 9;

// Two layers of grouped heads and a gated MLP.
decoder::Model base_model() {
  Attention attention;
  attention.heads = 4, attention.kv_heads = 2, attention.head_dim = 6;
  attention.rotation.dim = 6;
  decoder::Model model;
  model.vocabulary = kTokens, model.width = kWidth, model.init_std = 0.3;
  model.layers.assign(2, {attention, Mlp{.width = 10}});
  return model;
}

struct Form {
  std::string name;
  void (*change)(decoder::Model& model);
};
std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

void each_layer(decoder::Model& model, const std::function<void(Layer&, Attention&, Mlp&)>& change) {
  for (Layer& layer : model.layers)
    change(layer, std::get<Attention>(layer.mixer), std::get<Mlp>(layer.feed_forward));
}

void llama(decoder::Model&) {}

void olmo2(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.order = Layer::Order::after;
    attention.head_norm = Attention::HeadNorm::whole;
  });
}

void gemma2(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp& mlp) {
    layer.order = Layer::Order::both;
    layer.norm.kind = Norm::Kind::rms_plus_one;
    attention.options.soft_cap = 1.5, attention.options.scale = 0.6;
    mlp.activation = Activation::gelu_tanh;
  });
  std::get<Attention>(model.layers[0].mixer).options.window = 4;
  model.last_norm.kind = Norm::Kind::rms_plus_one;
  model.embedding_multiplier = 3.5, model.logits_soft_cap = 2, model.tied = true;
}

void phi(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp& mlp) {
    layer.order = Layer::Order::side_by_side;
    layer.norm = {Norm::Kind::layer, 1e-5, true};
    attention.rotation.dim = 2, attention.qkv_bias = attention.output_bias = true;
    mlp.gated = false, mlp.bias = true, mlp.activation = Activation::gelu;
  });
  model.last_norm = {Norm::Kind::layer, 1e-5, true};
  model.head_bias = true;
}

void cohere(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.order = Layer::Order::side_by_side;
    layer.norm = {Norm::Kind::layer, 1e-5, false};
    attention.rotation.interleaved = true;
  });
  std::get<Attention>(model.layers[1].mixer).rotation = {};
  model.last_norm = {Norm::Kind::layer, 1e-5, false};
  model.logits_multiplier = 0.0625, model.tied = true;
}

void granite(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.residual_multiplier = 0.22;
    attention.options.scale = 0.05;
  });
  model.embedding_multiplier = 12, model.logits_multiplier = 0.25;
}

void glm(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp&) {
    attention.rotation.dim = 4, attention.rotation.interleaved = true, attention.qkv_bias = true;
    attention.head_norm = Attention::HeadNorm::each_head;
  });
}

void nemotron(decoder::Model& model) {
  each_layer(model,
             [](Layer&, Attention&, Mlp& mlp) { mlp.gated = false, mlp.activation = Activation::relu2; });
  model.layers[0].feed_forward = decoder::Absent{};
  model.layers[1].mixer = decoder::Absent{};
}

void opt(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp& mlp) {
    attention.rotation = {};
    mlp.gated = false, mlp.activation = Activation::relu;
  });
}

void gpt2(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp& mlp) {
    layer.norm = {Norm::Kind::layer, 1e-5, true};
    attention.rotation = {}, attention.qkv_bias = attention.output_bias = true;
    mlp.gated = false, mlp.bias = true, mlp.activation = Activation::gelu;
  });
  model.last_norm = {Norm::Kind::layer, 1e-5, true};
  model.positions = kLength + 2, model.tied = true;
}

void starcoder2(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.residual_dropout = 0.3, attention.options.dropout = 0.4;
  });
  std::get<Attention>(model.layers[0].mixer).options.window = 4;
  model.embedding_dropout = 0.2;
}

void ministral(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp&) { attention.query_scaling = {0.4, 3}; });
}

void falcon(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp& mlp) {
    attention.qkv_bias = attention.output_bias = mlp.bias = true;
    attention.input_multiplier = 0.7, attention.output_multiplier = 1.4;
    mlp.gate_multiplier = 1.3, mlp.output_multiplier = 0.6;
  });
}

void baichuan(decoder::Model& model) {
  model.normalised_head = true;
}

void gated_gelu(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention&, Mlp& mlp) { mlp.activation = Activation::gelu; });
}

// Heads, gates and bounds that differ by layer.
void step(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp& mlp) {
    layer.norm.kind = Norm::Kind::rms_plus_one;
    attention.head_norm = Attention::HeadNorm::each_head;
    attention.gate.width = decoder::OutputGate::Width::each_head;
    mlp.limit = 0.2;
  });
  auto& sliding = std::get<Attention>(model.layers[1].mixer);
  sliding.heads = 6, sliding.options.window = 4, sliding.rotation.theta = 100;
  std::get<Mlp>(model.layers[1].feed_forward).limit = 0;
  model.last_norm.kind = Norm::Kind::rms_plus_one;
}

void laguna(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp&) {
    attention.gate = {decoder::OutputGate::Width::each_number, decoder::OutputGate::Function::softplus};
  });
}

void mimo(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp&) {
    attention.options.value_dim = 5, attention.value_scale = 0.7, attention.rotation.dim = 4;
    attention.gate.function = decoder::OutputGate::Function::softplus;
  });
  auto& gated = std::get<Attention>(model.layers[0].mixer).gate;
  gated.width = decoder::OutputGate::Width::each_head;
}

const Form kForms[] = {{"llama", llama},
                       {"olmo2", olmo2},
                       {"gemma2", gemma2},
                       {"phi", phi},
                       {"cohere", cohere},
                       {"granite", granite},
                       {"glm", glm},
                       {"nemotron", nemotron},
                       {"opt", opt},
                       {"gated_gelu", gated_gelu},
                       {"gpt2", gpt2},
                       {"ministral", ministral},
                       {"baichuan", baichuan},
                       {"step", step},
                       {"laguna", laguna},
                       {"mimo", mimo},
                       {"starcoder2", starcoder2},
                       {"falcon", falcon}};

// Values that tell apart what norms and biases do.
Parameters values_of(Units& units) {
  Parameters out;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (out.contains(slot.name)) continue;
      at::NoGradGuard no_gradients;
      if (slot.tensor->dim() == 1) slot.tensor->add_(at::randn_like(*slot.tensor), 0.2);
      out[slot.name] = slot.tensor->detach().clone().set_requires_grad(true);
    }
  return out;
}

class DecoderForms : public ::testing::TestWithParam<Form> {
 protected:
  DecoderForms() : model(base_model()) {
    at::manual_seed(5);
    GetParam().change(model);
    units = decoder::make_spec({.model = model})->make_units(at::kDouble);
    values = values_of(units);
    batch.tokens = at::randint(kTokens, {2, kLength}, at::kLong);
    batch.draws = at::arange(2 * kLength, at::kLong).view({2, kLength}) * 7 + 3;
  }
  decoder::Model model;
  Units units;
  Parameters values;
  Batch batch;
};

// The angles of the rotation are fp32.
constexpr double kTolerance = 2e-6;

void expect_near_to(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  const double scale = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got - want).abs().max().item<double>(), kTolerance * scale) << what;
}

TEST_P(DecoderForms, GiveTheLogitsOfPlainOperators) {
  const at::Tensor want = plain_logits(model, values, batch.tokens, batch.draws);
  expect_near_to(logits_of(units)(batch), want, "logits");
}

TEST_P(DecoderForms, GiveTheLossAndGradientsOfPlainOperators) {
  batch.labels = at::randint(kTokens, {2, kLength}, at::kLong);
  const at::Tensor want =
      at::cross_entropy_loss(plain_logits(model, values, batch.tokens, batch.draws).flatten(0, 1),
                             batch.labels.flatten(), {}, at::Reduction::Sum);
  want.backward();
  const at::Tensor got = logits_of(units)(batch);
  EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
  got.sum().backward();
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      ASSERT_TRUE(slot.tensor->grad().defined()) << slot.name;
      expect_near_to(slot.tensor->grad(), values.at(slot.name).grad(), slot.name);
    }
}

TEST(LearnedPositions, RefuseOneWithoutAVector) {
  decoder::Model model = base_model();
  gpt2(model);
  const Units units = decoder::make_spec({.model = model})->make_units(at::kFloat);
  Batch batch;
  batch.tokens = at::zeros({1, model.positions + 1}, at::kLong);
  EXPECT_EQ(thrown_by([&] { units.front()->forward({batch.tokens}, batch); }),
            "error[input] embedding: position 11 has no vector: the model has 11 positions\n"
            "  hint: give shorter sequences, or a model with more positions");
}

INSTANTIATE_TEST_SUITE_P(All, DecoderForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
