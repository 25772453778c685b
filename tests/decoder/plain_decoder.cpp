// Reference decoder: one operator after the other, with an explicit attention mask.
#include "decoder/plain_decoder.h"

#include <cmath>
#include <utility>

#include "decoder/plain_activation.h"
#include "decoder/plain_streams.h"
#include "heddle/nn/dropout.h"

namespace heddle::tests {
namespace {

using decoder::Norm;
using Order = decoder::Layer::Order;

class Plain {
 public:
  Plain(const decoder::Model& model, const Parameters& parameters, const at::Tensor& draws)
      : model_(model), all_(parameters), draws_(draws) {}

  at::Tensor logits(const at::Tensor& tokens) {
    at::Tensor x = at::embedding(all_.at("model.embed_tokens.weight"), tokens) * model_.embedding_multiplier;
    if (model_.embedding_norm) x = norm(*model_.embedding_norm, "model.embed_norm", x);
    if (model_.positions > 0) x = x + all_.at("model.embed_positions.weight").narrow(0, 0, tokens.size(1));
    x = dropped(model_.embedding_dropout, "model.embed_dropout", x);
    const at::Tensor inputs = model_.layer_inputs.width > 0 ? all_inputs(tokens, x) : at::Tensor();
    if (model_.hyper_connections) x = x.repeat({1, 1, model_.hyper_connections->streams});
    for (size_t i = 0; i < model_.layers.size(); ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      x = model_.block_residuals ? in_blocks(i, at, x) : layer(model_.layers[i], at, x);
      if (inputs.defined()) x = x + of_input(model_.layers[i], at + "layer_input.", x, inputs.select(2, i));
      if (model_.layers[i].scalar) x = x * all_.at(at + "layer_scalar");
    }
    if (model_.hyper_connections)
      x = streams("model.hc_head.hc_").collapsed(x.flatten(0, 1)).view({tokens.size(0), tokens.size(1), -1});
    if (model_.block_residuals) x = mixed("model.output_res.", x);
    x = norm(model_.last_norm, "model.norm", x) * model_.logits_multiplier;
    const std::string head = model_.tied ? "model.embed_tokens" : "lm_head";
    const at::Tensor weight = all_.at(head + ".weight");
    const at::Tensor out =
        model_.normalised_head ? at::matmul(x, (weight / weight.norm(2, {1}, true)).t()) : linear(head, x);
    const double cap = model_.logits_soft_cap;
    return cap == 0 ? out : at::tanh(out / cap) * cap;
  }

 private:
  at::Tensor find(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? at::Tensor() : found->second;
  }
  // x: [rows, sequence, columns].
  at::Tensor dropped(double p, const std::string& name, const at::Tensor& x) const {
    if (p == 0) return x;
    const at::Tensor draws = model::uniform_draws(draws_.view(-1), x.size(-1), model::draw_salt(name));
    return x * draws.ge(p).view(x.sizes()) / (1 - p);
  }
  // weights: [rows, heads, sequence, sequence].
  at::Tensor dropped_weights(double p, const std::string& name, const at::Tensor& weights) const {
    if (p == 0) return weights;
    std::vector<at::Tensor> heads;
    for (int64_t head = 1; head <= weights.size(1); ++head)
      heads.push_back(model::uniform_draws(draws_.view(-1) + head * 0x1E3779B97F4A7C15, weights.size(3),
                                           model::draw_salt(name))
                          .ge(p)
                          .view({weights.size(0), weights.size(2), weights.size(3)}));
    return weights * at::stack(heads, 1) / (1 - p);
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const at::Tensor y = at::matmul(x, all_.at(name + ".weight").t()), bias = find(name + ".bias");
    return bias.defined() ? y + bias : y;
  }
  at::Tensor norm(const Norm& form, const std::string& name, const at::Tensor& x) const {
    const at::Tensor given = find(name + ".weight"), bias = find(name + ".bias");
    const at::Tensor weight = given.defined() ? given : at::ones({x.size(-1)}, x.options());
    const bool is_centred = form.kind == Norm::Kind::layer || form.kind == Norm::Kind::layer_bare;
    const at::Tensor centred = is_centred ? x - x.mean(-1, true) : x;
    const at::Tensor unit = centred * (centred.square().mean(-1, true) + form.eps).rsqrt();
    const at::Tensor y = unit * (form.kind == Norm::Kind::rms_plus_one ? weight + 1 : weight);
    return bias.defined() ? y + bias : y;
  }

  // Returns [rows, sequence, layers, width].
  at::Tensor all_inputs(const at::Tensor& tokens, const at::Tensor& x) const {
    const std::string at = "model.layer_inputs.";
    const int64_t width = model_.layer_inputs.width;
    const at::Tensor table = all_.at(at + "embed_tokens_per_layer.weight");
    const at::Tensor of_tokens = at::embedding(table, tokens) * std::sqrt(static_cast<double>(width));
    const at::Tensor product =
        linear(at + "per_layer_model_projection", x) / std::sqrt(static_cast<double>(model_.width));
    const at::Tensor of_hidden = norm(model_.last_norm, at + "per_layer_projection_norm",
                                      product.unflatten(2, {product.size(2) / width, width}));
    return (of_hidden + of_tokens.view_as(of_hidden)) / std::sqrt(2.0);
  }
  at::Tensor of_input(const decoder::Layer& form, const std::string& at, const at::Tensor& x,
                      const at::Tensor& inputs) const {
    const at::Tensor gate =
        plain_activation(model_.layer_inputs.activation, linear(at + "per_layer_input_gate", x));
    return norm(form.norm, at + "post_per_layer_input_norm",
                linear(at + "per_layer_projection", gate * inputs));
  }

  at::Tensor layer(const decoder::Layer& form, const std::string& at, const at::Tensor& x) {
    const bool attends = std::holds_alternative<decoder::Attention>(form.mixer);
    const bool feeds = std::holds_alternative<decoder::Mlp>(form.feed_forward);
    const auto attend = [&](const at::Tensor& in) {
      const auto& form_of = std::get<decoder::Attention>(form.mixer);
      const at::Tensor y = attention(form_of, at + "self_attn", in * form_of.input_multiplier);
      return dropped(form.residual_dropout, at + "mixer_dropout", y * form_of.output_multiplier);
    };
    const auto feed = [&](const at::Tensor& in) {
      const auto& form_of = std::get<decoder::Mlp>(form.feed_forward);
      const at::Tensor y = mlp(form_of, at + "mlp.", in) * form_of.output_multiplier;
      return dropped(form.residual_dropout, at + "mlp_dropout", y);
    };
    const auto by = [&](const char* name, const at::Tensor& in) { return norm(form.norm, at + name, in); };
    const auto after = [&](const char* name, const at::Tensor& in) {
      return norm(form.norm_after.value_or(form.norm), at + name, in);
    };
    const double m = form.residual_multiplier;
    if (form.order == Order::side_by_side) {
      const at::Tensor in = by("input_layernorm", x);
      return x + attend(in) * m + feed(in) * m;
    }
    const auto mixer = [&](const at::Tensor& in) {
      if (form.order == Order::before) return attend(by("input_layernorm", in)) * m;
      if (form.order == Order::after) return by("post_attention_layernorm", attend(in)) * m;
      return after("post_attention_layernorm", attend(by("input_layernorm", in))) * m;
    };
    const auto feed_forward = [&](const at::Tensor& in) {
      if (form.order == Order::before) return feed(by("post_attention_layernorm", in)) * m;
      if (form.order == Order::after) return by("post_feedforward_layernorm", feed(in)) * m;
      return after("post_feedforward_layernorm", feed(by("pre_feedforward_layernorm", in))) * m;
    };
    const at::Tensor y = attends ? onto(at + "attn_hc.", x, mixer) : x;
    return feeds ? onto(at + "ffn_hc.", y, feed_forward) : y;
  }

  at::Tensor mixed(const std::string& at, const at::Tensor& x) const {
    return plain_blocks(blocks_, x, all_.at(at + "norm.weight"), all_.at(at + "proj.weight"),
                        model_.block_residuals->eps);
  }
  at::Tensor in_blocks(size_t index, const std::string& at, const at::Tensor& x) {
    const decoder::Layer& form = model_.layers[index];
    const auto scaled = [&](const char* name, const at::Tensor& y) {
      return dropped(form.residual_dropout, at + name, y) * form.residual_multiplier;
    };
    const at::Tensor in = blocks_.empty() ? x : mixed(at + "attn_res.", x);
    const bool begins = index % static_cast<size_t>(model_.block_residuals->size) == 0;
    if (begins) blocks_.push_back(x);
    const auto& own = std::get<decoder::Attention>(form.mixer);
    const at::Tensor y = scaled(
        "mixer_dropout", attention(own, at + "self_attn", norm(form.norm, at + "input_layernorm", in)));
    const at::Tensor sum = begins ? y : x + y;
    const at::Tensor of_mlp = norm(form.norm, at + "post_attention_layernorm", mixed(at + "mlp_res.", sum));
    return sum + scaled("mlp_dropout", mlp(std::get<decoder::Mlp>(form.feed_forward), at + "mlp.", of_mlp));
  }

  PlainStreams streams(const std::string& prefix) const {
    return {all_.at(prefix + "fn"), all_.at(prefix + "base"), all_.at(prefix + "scale"),
            *model_.hyper_connections};
  }
  template <class Part>
  at::Tensor onto(const std::string& at, const at::Tensor& x, const Part& part) const {
    if (!model_.hyper_connections) return x + part(x);
    const PlainStreams own = streams(at);
    const at::Tensor rows = x.flatten(0, 1), sum = own.collapsed(rows);
    const at::Tensor y = part(sum.view({x.size(0), x.size(1), -1}));
    return own.expanded(rows, y.flatten(0, 1)).view_as(x);
  }

  at::Tensor plain_xielu(const std::string& at, const at::Tensor& x) const {
    const at::Tensor beta = all_.at(at + "beta"), below = at::minimum(x, all_.at(at + "eps")).expm1() - x;
    const at::Tensor positive = all_.at(at + "alpha_p").exp().log1p(),
                     negative = all_.at(at + "alpha_n").exp().log1p() + beta;
    return at::where(x > 0, positive * x.square(), negative * below) + beta * x;
  }
  at::Tensor mlp(const decoder::Mlp& form, const std::string& at, const at::Tensor& x) const {
    if (form.learned) return linear(at + "down_proj", plain_xielu(at + "act_fn.", linear(at + "up_proj", x)));
    if (!form.gated)
      return linear(at + "down_proj", plain_activation(form.activation, linear(at + "up_proj", x)));
    at::Tensor factored = linear(at + "gate_proj", x) * form.gate_multiplier;
    if (form.limit_before) factored = at::clamp(factored, {}, form.limit);
    at::Tensor gate = plain_activation(form.activation, factored), up = linear(at + "up_proj", x);
    if (form.situ) return linear(at + "down_proj", plain_situ(*form.situ, factored, up));
    if (form.limit > 0 && !form.limit_before) gate = at::clamp(gate, {}, form.limit);
    if (form.limit > 0) up = at::clamp(up, -form.limit, form.limit);
    return linear(at + "down_proj", gate * up);
  }

  // x: [rows, sequence, heads, head_dim].
  static at::Tensor turned(const decoder::Rotation& form, const at::Tensor& x) {
    if (form.dim == 0) return x;
    if (form.of_whole_head) return turned_in_part(form, x);
    const int64_t half = form.dim / 2;
    const at::Tensor powers = at::arange(half, at::kDouble) * 2 / static_cast<double>(form.dim);
    const at::Tensor frequencies = form.frequencies.empty() ? at::pow(form.theta, powers).reciprocal()
                                                            : at::tensor(form.frequencies, at::kDouble);
    const at::Tensor angles = (at::arange(x.size(1), at::kDouble).unsqueeze(1) * frequencies.unsqueeze(0))
                                  .to(x.scalar_type())
                                  .unsqueeze(1);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    const auto number = [&](int64_t which) {
      return form.interleaved ? x.slice(3, which, form.dim, 2) : x.narrow(3, which * half, half);
    };
    const at::Tensor a = number(0), b = number(1);
    const at::Tensor first = a * cos - b * sin, second = b * cos + a * sin;
    const at::Tensor both =
        form.interleaved ? at::stack({first, second}, 4).flatten(3) : at::cat({first, second}, 3);
    return at::cat({both, x.slice(3, form.dim)}, 3);
  }

  // Partial RoPE over pairs (i, i + half) of the whole head. Only the first dim / 2 pairs are rotated.
  static at::Tensor turned_in_part(const decoder::Rotation& form, const at::Tensor& x) {
    const int64_t half = x.size(3) / 2, pairs = form.dim / 2;
    const at::Tensor powers = at::arange(pairs, at::kDouble) / static_cast<double>(half);
    const at::Tensor angles =
        (at::arange(x.size(1), at::kDouble).unsqueeze(1) / at::pow(form.theta, powers).unsqueeze(0))
            .to(x.scalar_type())
            .unsqueeze(1);
    const at::Tensor a = x.narrow(3, 0, pairs), b = x.narrow(3, half, pairs);
    const at::Tensor first = a * angles.cos() - b * angles.sin(),
                     second = b * angles.cos() + a * angles.sin();
    return at::cat({first, x.slice(3, pairs, half), second, x.slice(3, half + pairs)}, 3);
  }

  static at::Tensor clamped(const decoder::Attention& form, const at::Tensor& x) {
    return form.clip > 0 ? x.clamp(-form.clip, form.clip) : x;
  }

  // Keys and values [rows, sequence, kv_heads, ...] as attention reads them.
  using KeysAndValues = std::pair<at::Tensor, at::Tensor>;
  KeysAndValues keys_of(const decoder::Attention& form, const std::string& name, const at::Tensor& k,
                        const at::Tensor& x) {
    if (form.keys_of_layer)
      return kept_.at("model.layers." + std::to_string(*form.keys_of_layer) + ".self_attn");
    const std::string at = name + ".";
    const at::Tensor product = clamped(form, linear(at + (form.keys_are_values ? "k_proj" : "v_proj"), x));
    at::Tensor v = product.view({x.size(0), x.size(1), form.kv_heads, -1}) * form.value_scale;
    if (form.value_norm) v = norm(*form.value_norm, at + "v_norm", v);
    kept_[name] = {turned(form.rotation, k), v};
    return kept_[name];
  }

  at::Tensor attention(const decoder::Attention& form, const std::string& name, const at::Tensor& x) {
    const std::string at = name + ".";
    const int64_t rows = x.size(0), length = x.size(1);
    const auto heads = [&](const char* module, const char* head_norm, int64_t count) {
      const at::Tensor y = clamped(form, linear(at + module, x));
      if (head_norm == nullptr || form.head_norm == decoder::Attention::HeadNorm::none)
        return y.view({rows, length, count, form.head_dim});
      if (form.head_norm == decoder::Attention::HeadNorm::whole)
        return norm(form.norm, at + head_norm, y).view({rows, length, count, form.head_dim});
      return norm(form.norm, at + head_norm, y.view({rows, length, count, form.head_dim}));
    };
    const int64_t group = form.heads / form.kv_heads;
    const auto& scaling = form.query_scaling;
    const at::Tensor turns = at::floor(at::arange(length, at::kDouble) / static_cast<double>(scaling.length));
    const at::Tensor factors =
        (1 + scaling.beta * at::log(1 + turns)).to(x.scalar_type()).view({length, 1, 1});
    const at::Tensor q =
        (turned(form.rotation, heads("q_proj", "q_norm", form.heads)) * factors).transpose(1, 2);
    const auto repeated = [&](const at::Tensor& one) {
      return one.transpose(1, 2).repeat_interleave(group, 1);
    };
    const at::Tensor own = form.keys_of_layer ? at::Tensor() : heads("k_proj", "k_norm", form.kv_heads);
    const KeysAndValues both = keys_of(form, name, own, x);
    const at::Tensor k = repeated(both.first), v = repeated(both.second);
    const double scale =
        form.options.scale > 0 ? form.options.scale : 1 / std::sqrt(static_cast<double>(form.head_dim));
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
    if (form.options.soft_cap > 0) scores = at::tanh(scores / form.options.soft_cap) * form.options.soft_cap;
    at::Tensor hidden = at::ones({length, length}, at::kBool).triu(1);
    if (form.options.window > 0)
      hidden = hidden.logical_or(at::ones({length, length}, at::kBool).tril(-form.options.window));
    scores = scores.masked_fill(hidden, -1e30);
    const at::Tensor weights = dropped_weights(form.options.dropout, name, at::softmax(scores, -1));
    const at::Tensor y = at::matmul(weights, v).transpose(1, 2);
    return linear(at + "o_proj", gated(form, at, x, y).flatten(2));
  }
  // y: [rows, sequence, heads, value_dim], the output of the heads.
  at::Tensor gated(const decoder::Attention& form, const std::string& at, const at::Tensor& x,
                   const at::Tensor& y) const {
    if (form.gate.width == decoder::OutputGate::Width::none) return y;
    const at::Tensor gate = linear(at + "g_proj", x).view({x.size(0), x.size(1), form.heads, -1});
    return y * (form.gate.function == decoder::OutputGate::Function::sigmoid ? at::sigmoid(gate)
                                                                             : at::log1p(at::exp(gate)));
  }

  const decoder::Model& model_;
  const Parameters& all_;
  const at::Tensor draws_;
  std::vector<at::Tensor> blocks_;             // inputs of the blocks, for BlockResiduals
  std::map<std::string, KeysAndValues> kept_;  // keyed by the name of the attention module
};

}  // namespace

at::Tensor plain_logits(const decoder::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                        const at::Tensor& draws) {
  return Plain(model, parameters, draws).logits(tokens);
}

}  // namespace heddle::tests
