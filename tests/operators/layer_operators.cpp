// Layers of the model library as operators of their input and parameters.
#include <utility>

#include "heddle/decoder/family.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using decoder::Absent;
using decoder::Layer;
using Ins = OperatorTensors;
using Check = OperatorCheck;

constexpr int64_t kLayerWidth = 12, kLayerRows = 2, kLayerLength = 11;

Units layer_units(const Layer& form, const at::TensorOptions& options) {
  decoder::Model model;
  model.vocabulary = 13, model.width = kLayerWidth, model.init_std = 0.4;
  model.layers = {form};
  return decoder::make_spec({.model = model})->make_units(options);
}

// constants: the documents, then the frozen parameters.
OperatorFunction run_layer(const Layer& form) {
  return [form](const Ins& in, const Ins& constants) {
    const at::TensorOptions options = in[0].options().requires_grad(false);
    const Units units = layer_units(form, options);
    size_t next = 1, next_constant = 1;
    for (ParameterSlot& slot : units[1]->parameters()) {
      if (slot.trainable())
        *slot.tensor = in[next++];
      else
        *slot.tensor = constants[next_constant++].to(slot.tensor->scalar_type());
    }
    Batch batch;
    batch.tokens = at::zeros({kLayerRows, kLayerLength}, options.dtype(at::kLong));
    batch.documents = constants[0];
    return Ins{units[1]->forward({in[0]}, batch)[0]};
  };
}

OperatorInput input_of(const ParameterSlot& slot) {
  OperatorInput out({});
  out.sizes = slot.tensor->sizes().vec();
  out.scale = slot.tensor->dim() == 1 ? 1 : 0.4;
  out.is_wide = slot.tensor->scalar_type() == at::kFloat;
  return out;
}

Operator layer_operator(const std::string& name, const std::vector<std::string>& nodes, const Layer& form) {
  Operator out{name, nodes, {}};
  const Units units = layer_units(form, at::TensorOptions(at::kBFloat16).device(at::kMeta));
  std::vector<OperatorInput> inputs = {{kLayerRows * kLayerLength, kLayerWidth}};
  Ins constants = {at::Tensor()};
  for (const ParameterSlot& slot : units[1]->parameters()) {
    if (slot.trainable())
      inputs.push_back(input_of(slot));
    else
      constants.push_back(at::randn(slot.tensor->sizes()));
  }
  for (const bool packed : {false, true}) {
    if (packed) constants[0] = at::tensor({0, 1, 9, 11, 16, 22}, at::kInt);
    out.cases.push_back({packed ? "documents" : "rows", inputs, run_layer(form), {}, constants});
  }
  out.skipped = {{Check::formula, "tests/decoder compares layers with plain operators"}};
  out.narrow_tolerance = 1e-1;
  return out;
}

const char* const kDiscrete = "rounded scores may choose other keys";

Operator attention_layer() {
  decoder::Attention form{.heads = 4, .kv_heads = 2, .head_dim = 6};
  form.head_norm = decoder::Attention::HeadNorm::each_head;
  form.qkv_bias = form.output_bias = form.sinks = true;
  form.gate = {decoder::OutputGate::Width::each_head};
  Layer layer{form, Absent()};
  layer.scalar = true;
  return layer_operator("attention_layer", {"AttentionBackward", "OutputGateBackward", "LayerScalarBackward"},
                        layer);
}

decoder::Latent small_latent() {
  return {.heads = 2, .rank = 7, .query_rank = 6, .plain = 3, .rotary = 4, .value = 5};
}

Operator latent_layer() {
  return layer_operator("latent_layer", {"LatentHeadsBackward", "SplitLatentBackward", "AttentionBackward"},
                        {small_latent(), Absent()});
}

Operator sparse_latent_layer() {
  decoder::Latent form = small_latent();
  form.indexer = {.heads = 3, .head_dim = 6, .top_k = 3};
  Operator out = layer_operator("sparse_latent_layer", {"AttentionBackward"}, {form, Absent()});
  out.skipped.emplace(Check::bfloat16, kDiscrete);
  return out;
}

Operator compressed_layer(int64_t top_k) {
  decoder::CompressedAttention form;
  form.heads = 4, form.head_dim = 6, form.rotary = 4, form.query_rank = 5;
  form.output_groups = 2, form.output_rank = 3, form.window = 4, form.theta = 50;
  form.rate = 2, form.overlapped = true;
  form.index_heads = 9, form.index_head_dim = 8, form.index_top_k = top_k;
  Operator out = layer_operator(top_k > 0 ? "sparse_compressed_layer" : "compressed_layer",
                                {"PooledEntriesBackward", "WindowAttentionBackward", "BlockProductBackward"},
                                {decoder::compressed_attention(form), Absent()});
  if (top_k > 0) out.skipped.emplace(Check::bfloat16, kDiscrete);
  return out;
}

Operator delta_net_layer() {
  return layer_operator("delta_net_layer", {"DeltaRuleBackward", "ShortConvolutionBackward"},
                        {decoder::delta_net({2, 4, 5, 3, 4, 1e-2}), Absent()});
}

Operator channel_delta_layer() {
  return layer_operator("channel_delta_layer", {"DeltaRuleBackward", "GatedNormBackward"},
                        {decoder::channel_delta({.heads = 2, .width = 4, .eps = 1e-2}), Absent()});
}

Operator mamba_mixer_layer() {
  decoder::Mamba form;
  form.heads = 4, form.groups = 2, form.width = 3, form.state = 5, form.eps = 1e-2;
  Operator out = layer_operator("mamba_layer", {"StateScanBackward", "GatedGroupNormBackward"},
                                {decoder::mamba(form), Absent()});
  out.narrow_tolerance = 2e-1;  // the norm after the scan divides by small numbers
  return out;
}

}  // namespace

std::vector<Operator> layer_operators() {
  return {attention_layer(),   latent_layer(),    sparse_latent_layer(), compressed_layer(0),
          compressed_layer(2), delta_net_layer(), channel_delta_layer(), mamba_mixer_layer()};
}

}  // namespace heddle::tests
