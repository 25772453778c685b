// Baichuan 2 7B: Llama with one tensor for q, k and v, and a head whose weight rows are normalized.
#include "families.h"
#include "heddle/decoder/family.h"

namespace heddle::dense {
namespace {

struct BaichuanKeys : decoder::CommonKeys {
  BaichuanKeys() { vocab_size = 125696, max_position_embeddings = 4096, pad_token_id = 0; }
  std::string hidden_act = "silu";
};

// Refuses models without max_position_embeddings (13B), which add distance biases (ALiBi) to their scores.
void refuse_distances(const Node& keys) {
  if (model::given(keys, "max_position_embeddings") != nullptr) return;
  if (const Node* length = model::given(keys, "model_max_length"))
    model::refuse(*length,
                  "a Baichuan model without max_position_embeddings (13B) has attention biases by distance "
                  "(ALiBi), which are not built",
                  "use a 7B model");
}

model::ModelKeys<BaichuanKeys> baichuan_keys() {
  auto keys = decoder::common_keys<BaichuanKeys>();
  decoder::add_rms_norm(keys);
  model::KeyGroup<BaichuanKeys> distances;
  distances.table = {{"model_max_length", "integer or null", "null", "",
                      "Ignored if max_position_embeddings is set, else refused (13B).", ""}};
  distances.read = [](const Node& given, BaichuanKeys& out) {
    refuse_distances(given);
    decoder::check_rotary(given, out.rotary, out.head_width());
  };
  distances.write = [](const BaichuanKeys&) { return std::vector<Node::Entry>(); };
  keys.field("hidden_act", &BaichuanKeys::hidden_act, "Activation function of the MLP.",
             decoder::activation_words())
      .rule([](const BaichuanKeys& given) {
        if (given.head_width() % 2 == 0) return std::string();
        return "the rotary embedding needs an even head width, got " + std::to_string(given.head_width());
      })
      .group(std::move(distances))
      .only("num_key_value_heads", Node(), "Key-value heads are not grouped.")
      .only("z_loss_weight", Node::integer(0), "The z-loss is not supported.");
  return keys;
}

decoder::Model baichuan_model(const BaichuanKeys& keys) {
  decoder::Model model =
      keys.model({keys.attention(), keys.mlp(decoder::activation_of(keys.hidden_act)), keys.norm()});
  model.normalised_head = true;
  return model;
}

const decoder::Description<BaichuanKeys>& baichuan() {
  static const decoder::Description<BaichuanKeys> kBaichuan = {
      "baichuan", "BaichuanForCausalLM", baichuan_keys(), baichuan_model,
      decoder::Files()
          .joined("self_attn.W_pack", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
          .ignored(".rotary_emb.inv_freq")};
  return kBaichuan;
}

// Removes the duplicate num_key_value_heads: the family accepts no value for it.
std::vector<FieldInfo> table() {
  std::vector<FieldInfo> out = baichuan().keys.table();
  std::erase_if(out, [](const FieldInfo& field) {
    return field.key == "num_key_value_heads" && field.range != Node().written();
  });
  return out;
}

}  // namespace

void offer_baichuan(Offer& plugin) {
  plugin.model<decoder::Family<baichuan>>("baichuan", table());
}

}  // namespace heddle::dense
