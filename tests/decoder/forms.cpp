// Decoder forms, each defined as a change of the base model.
#include "decoder/forms.h"

#include <functional>
#include <variant>

namespace heddle::tests {
namespace {

using decoder::Activation;
using decoder::Attention;
using decoder::Layer;
using decoder::Mlp;
using decoder::Norm;

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

void olmo(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.norm = {Norm::Kind::layer_bare, 1e-5, false};
    attention.clip = 0.5;
  });
  model.last_norm = {Norm::Kind::layer_bare, 1e-5, false};
}

void apertus(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp& mlp) {
    attention.head_norm = Attention::HeadNorm::each_head;
    mlp.gated = false, mlp.learned = decoder::xielu();
  });
}

// RoPE with the opposite direction of rotation.
void nanochat(decoder::Model& model) {
  each_layer(model, [](Layer&, Attention& attention, Mlp&) {
    attention.rotation.frequencies = {-1, -0.1, -0.01};
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

// Head counts, gates and activation limits differ by layer.
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

// Head dimensions differ by layer, values equal keys, RoPE pairs span the whole head, a layer reuses the keys
// of another layer, and per-layer inputs.
void gemma4(decoder::Model& model) {
  model.layers.push_back(model.layers[0]);
  each_layer(model, [](Layer& layer, Attention& attention, Mlp& mlp) {
    layer.order = Layer::Order::both, layer.scalar = true;
    attention.head_norm = Attention::HeadNorm::each_head;
    attention.value_norm = Norm{.kind = Norm::Kind::rms_bare};
    attention.options.scale = 0.4;
    mlp.activation = Activation::gelu_tanh;
  });
  auto& sliding = std::get<Attention>(model.layers[1].mixer);
  sliding.head_dim = 4, sliding.kv_heads = 1, sliding.options.window = 4, sliding.rotation.dim = 4;
  for (const size_t full : {0, 2}) {
    auto& attention = std::get<Attention>(model.layers[full].mixer);
    attention.rotation = {4, 100, {}, false, true};
    attention.keys_are_values = true;
  }
  auto& last = std::get<Attention>(model.layers[2].mixer);
  last.keys_of_layer = 0, last.keys_are_values = false;
  model.layer_inputs = {16, kTokens, Activation::gelu_tanh};
}

void muse(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention& attention, Mlp&) {
    layer.order = Layer::Order::both, layer.norm_after = Norm{.eps = 0.1};
    attention.head_norm = Attention::HeadNorm::each_head;
    attention.norm.kind = Norm::Kind::rms_bare;
    attention.gate.width = decoder::OutputGate::Width::each_number;
  });
  model.embedding_norm = Norm{.kind = Norm::Kind::rms_bare};
}

void hyper_connections(decoder::Model& model) {
  model.hyper_connections = {.streams = 3, .iterations = 5, .eps = 1e-3, .norm_eps = 1e-5};
}

void hyper_connections_of_both(decoder::Model& model) {
  hyper_connections(model);
  each_layer(model, [](Layer& layer, Attention&, Mlp& mlp) {
    layer.order = Layer::Order::both, layer.residual_multiplier = 0.7;
    mlp.limit = 0.5, mlp.limit_before = true;
  });
  model.positions = kLength;
}

// Four layers, so that a block starts after a block of two layers, and softly bounded gates (SiTU).
void block_residuals(decoder::Model& model) {
  model.layers.resize(4, model.layers[0]);
  each_layer(model, [](Layer&, Attention&, Mlp& mlp) { mlp.situ = model::Situ{0.7, 1.2}; });
  std::get<Mlp>(model.layers[1].feed_forward).situ->bound = 0;
  model.block_residuals = {.size = 2, .eps = 1e-3};
}

void blocks_of_one_layer(decoder::Model& model) {
  each_layer(model, [](Layer& layer, Attention&, Mlp&) {
    layer.residual_multiplier = 0.7, layer.residual_dropout = 0.3;
  });
  model.block_residuals = {.size = 1, .eps = 1e-5};
  model.tied = true;
}

}  // namespace

decoder::Model base_model() {
  Attention attention;
  attention.heads = 4, attention.kv_heads = 2, attention.head_dim = 6;
  attention.rotation.dim = 6;
  decoder::Model model;
  model.vocabulary = kTokens, model.width = kWidth, model.init_std = 0.3;
  model.layers.assign(2, {attention, Mlp{.width = 10}});
  return model;
}

const std::vector<Form>& decoder_forms() {
  static const std::vector<Form> kForms = {{"llama", llama},
                                           {"olmo", olmo},
                                           {"olmo2", olmo2},
                                           {"apertus", apertus},
                                           {"nanochat", nanochat},
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
                                           {"falcon", falcon},
                                           {"gemma4", gemma4},
                                           {"muse", muse},
                                           {"hyper_connections", hyper_connections},
                                           {"hyper_connections_of_both", hyper_connections_of_both},
                                           {"block_residuals", block_residuals},
                                           {"blocks_of_one_layer", blocks_of_one_layer}};
  return kForms;
}

}  // namespace heddle::tests
