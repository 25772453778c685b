// Text model of Muse Glimmer: norms of queries and keys without a weight, a gate of attention's output, and a
// normalized embedding.
#include <array>
#include <cmath>
#include <utility>

#include "heddle/decoder/text_family.h"
#include "heddle/sdk.h"
#include "keys.h"

namespace heddle::muse_glimmer {
namespace {

constexpr const char *kText = "text_config", *kVision = "vision_config", *kType = "muse_glimmer",
                     *kTextType = "muse_glimmer_text";

decoder::Attention attention_of(const Keys& keys, int64_t layer) {
  decoder::Attention out = keys.attention();
  out.qkv_bias = out.output_bias = keys.attention_bias;
  out.head_norm = decoder::Attention::HeadNorm::each_head;
  out.norm.kind = decoder::Norm::Kind::rms_bare;
  out.options.scale = keys.qk_scale_factor / std::sqrt(static_cast<double>(out.head_dim));
  out.gate.width = decoder::OutputGate::Width::each_number;
  if (keys.slides(layer)) out.options.window = keys.sliding_window;
  if (!keys.rotates(layer)) out.rotation = {};
  return out;
}

decoder::Model model_of(const Keys& keys) {
  decoder::Norm norm = keys.norm(), after;
  norm.kind = after.kind = decoder::Norm::Kind::rms_plus_one;
  after.eps = keys.post_norm_eps;
  decoder::Model model = keys.model();
  model.embedding_norm = decoder::Norm{.kind = decoder::Norm::Kind::rms_bare, .eps = keys.rms_norm_eps};
  model.logits_multiplier = keys.output_multiplier;
  model.logits_soft_cap = keys.final_logit_softcapping;
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    decoder::Layer layer{attention_of(keys, i), keys.mlp(decoder::activation_of(keys.hidden_activation)),
                         norm, decoder::Layer::Order::both};
    layer.norm_after = after;
    model.layers.push_back(std::move(layer));
  }
  return model;
}

// Names in files of the model with images, the only model that transformers can generate with.
decoder::Files files() {
  decoder::Files out;
  for (const std::string part : {"embed_tokens", "layers", "norm"})
    out.renamed("model." + part, "model.language_model." + part);
  out.renamed("self_attn.g_proj", "self_attn.gate_proj");
  for (const char* part : {"vision_tower", "vision_adapter", "vision_projection"}) out.ignored_module(part);
  return out;
}

const model::ModelKeys<Keys>& text() {
  static const model::ModelKeys<Keys> kKeys = keys_of_text();
  return kKeys;
}

// Writes the keys of the text model into those of the whole model.
std::string config_json(const Keys& keys, const Node& vision, const std::string& dtype) {
  const std::string of_text = text().config_json(keys, kTextType, "", dtype);
  std::vector<Node::Entry> out = {{kText, config::read_text(of_text, "config.json")},
                                  {"tie_word_embeddings", Node::boolean(keys.tie_word_embeddings)}};
  if (!vision.is_null()) out.emplace_back(kVision, vision);
  return model::write_config_json(Node::map(std::move(out)), kType, "MuseGlimmerForConditionalGeneration",
                                  dtype);
}

std::unique_ptr<ModelSpec> spec_of(const Keys& keys, const Node& vision) {
  decoder::ReadModel out;
  out.facts = {kTextType, keys.vocab_size, keys.max_position_embeddings, keys.stored_dtype()};
  out.model = model_of(keys);
  out.files = files();
  out.signature = text().signature(keys, kType);
  out.config_json = [keys, vision](const std::string& dtype) { return config_json(keys, vision, dtype); };
  return decoder::make_spec(std::move(out));
}

class MuseGlimmer : public IModelFamily {
 public:
  static std::vector<FieldInfo> table() {
    std::vector<FieldInfo> out = decoder::text_table(std::array<std::string, 1>{kTextType});
    out.push_back(
        {kVision, "map or null", "null", "",
         "Configuration of the vision model, which is not built. It is copied to exports unchanged.", ""});
    return out;
  }
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    if (unknown == UnknownKeys::refused) model::check_keys(keys, table(), unknown);
    if (model::given(keys, kText) == nullptr)
      model::refuse(keys, "text_config is missing: the older spelling without it is not built");
    const Node* vision = model::given(keys, kVision);
    return spec_of(text().read(decoder::text_keys(keys), unknown), vision == nullptr ? Node() : *vision);
  }
};

// Reads the keys of the text model alone, for recipes. Exports contain the whole model, and are read here
// too.
class MuseGlimmerText : public MuseGlimmer {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override {
    if (model::given(keys, kText) != nullptr) return MuseGlimmer::read(keys, unknown);
    return spec_of(text().read(keys, unknown), Node());
  }
};

}  // namespace
}  // namespace heddle::muse_glimmer

HEDDLE_PLUGIN("muse_glimmer", "0.1.0", "model muse_glimmer", "model muse_glimmer_text") {
  using namespace heddle::muse_glimmer;
  plugin.model<MuseGlimmerText>("muse_glimmer_text", text());
  plugin.model<MuseGlimmer>("muse_glimmer", MuseGlimmer::table());
}
