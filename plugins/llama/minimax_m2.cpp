// MiniMax-M2: norms over all heads of queries and of keys, partial rotation, a sigmoid router.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct MiniMaxKeys : ExpertKeys {
  MiniMaxKeys() {
    vocab_size = 200064, hidden_size = 3072, intermediate_size = 1536;
    num_hidden_layers = 62, num_attention_heads = 48, usual_key_heads = 8, head_dim = 128;
    max_position_embeddings = 196608, rotary.theta = 5e6;
    experts = 256, experts_of_token = 8;
  }
};

// Reads rotary_dim. partial_rotary_factor overrides it.
void read_rotary_dim(const Node& given, MiniMaxKeys& keys) {
  const Node* dim = model::given(given, "rotary_dim");
  const Node* parameters = model::given(given, "rope_parameters");
  const bool named = model::given(given, "partial_rotary_factor") != nullptr ||
                     (parameters != nullptr && model::given(*parameters, "partial_rotary_factor") != nullptr);
  if (dim == nullptr || named) return;
  const int64_t width = keys.head_width();
  if (dim->as_integer() < 2 || dim->as_integer() > width || dim->as_integer() % 2 != 0)
    model::refuse(*dim, "expected an even number from 2 to head_dim " + std::to_string(width) + ", got " +
                            dim->written());
  keys.rotary.part = static_cast<double>(dim->as_integer()) / static_cast<double>(width);
}

std::vector<Node::Entry> rotary_dim_entry(const MiniMaxKeys& keys) {
  return {{"rotary_dim", Node::integer(keys.rotary.dim(keys.head_width()))}};
}

void check_loss(const Node& given, const MiniMaxKeys&) {
  if (!model::boolean_or(given, "output_router_logits", false) ||
      model::given(given, "router_aux_loss_type") != nullptr)
    return;
  model::refuse(*given.find("output_router_logits"),
                "transformers' auxiliary loss of minimax_m2 counts experts that its router does not select",
                "set output_router_logits: false, or router_aux_loss_type: layer");
}

model::ModelKeys<MiniMaxKeys> minimax_keys() {
  auto keys = add_common<MiniMaxKeys>("minimax_m2", {.partial = true});
  add_experts(keys, {.experts = "num_local_experts", .width = nullptr, .correction = true},
              {"n_routed_experts", "num_experts"}, false);
  keys.group({{{"rotary_dim", "integer or null", "null", "even, at most head_dim",
                "Number of rotated elements per head. partial_rotary_factor overrides it.", ""}},
              read_rotary_dim,
              rotary_dim_entry});
  keys.only("scoring_func", Node::text("sigmoid"), "Function that converts router logits to scores.")
      .only("router_jitter_noise", Node::real(0), "Router jitter is not supported.");
  add_check<MiniMaxKeys>(keys, check_loss);
  return keys;
}

decoder::Model minimax_model(const MiniMaxKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.head_norm = decoder::Attention::HeadNorm::whole;
  return keys.model({attention, keys.corrected_mixture(), keys.norm()});
}

double minimax_benchmark(const BenchmarkSizes& m) {
  const double experts = m.f * m.chosen(8) + m.of("shared_intermediate_size", 0);
  return m.layers * (m.grouped_attention() + m.gated(experts)) + m.logits();
}

const decoder::Description<MiniMaxKeys>& minimax_m2() {
  static const decoder::Description<MiniMaxKeys> kMiniMax = {
      .model_type = "minimax_m2",
      .architecture = "MiniMaxM2ForCausalLM",
      .keys = minimax_keys(),
      .model = minimax_model,
      .files =
          decoder::Files().experts({"block_sparse_moe", "w1", "w3", "w2", "gate", "e_score_correction_bias"}),
      .benchmark = minimax_benchmark,
      .signature = signature<minimax_m2>};
  return kMiniMax;
}

}  // namespace

void offer_minimax_m2(Offer& plugin) {
  plugin.model<decoder::Family<minimax_m2>>("minimax_m2", minimax_m2().keys);
}

}  // namespace heddle::llama
