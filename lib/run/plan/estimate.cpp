// Estimates layouts from the sizes of the model and the speeds of the machine.
#include "lib/run/plan/estimate.h"

#include <algorithm>
#include <initializer_list>

#include "heddle/config/node.h"
#include "lib/cost/model_size.h"

namespace heddle {
namespace {

constexpr double kOthers = 1.35;  // time of computation by that of products
constexpr double kKernels = 60;   // kernels of a layer, forward and backward
constexpr double kExchanges = 8;  // collectives of a layer with tensor parallelism
// Activations that a layer keeps per token, in multiples of the hidden size, besides those of its MLP.
constexpr double kKeptOfLayer = 10, kKeptSelectively = 4, kKeptOfRecomputed = 1;
constexpr double kKeptOfMlp = 3;              // multiple of the MLP's width
constexpr double kLeastKept = 8;              // lower bound without recomputation
constexpr double kBytesOfGradient = 4;        // of gradients that are summed before they are reduced
constexpr double kBytesOfWholeParameter = 2;  // of parameters that are not freed after the forward pass

int64_t number_of(const Node& keys, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const Node* value = keys.find(name); value != nullptr && value->kind() == Node::Kind::integer)
      return value->as_integer();
  return 0;
}

// Parameters that a rank computes with.
struct Held {
  double dense = 0, experts = 0;
  double all() const { return dense + experts; }
};

double data_ranks(const LayoutSpace& space, const Layout& layout) {
  return static_cast<double>(space.world) / (layout.tp * layout.cp * layout.pp);
}

Held held(const ModelFigures& model, const Layout& layout) {
  const double dense = model.parameters - model.of_experts;
  return {dense * (model.unsplit + (1 - model.unsplit) / layout.tp) / layout.pp,
          model.of_experts / (static_cast<double>(layout.ep) * layout.etp * layout.pp)};
}

// Bytes of parameters, gradients and optimizer state on a rank with these parameters.
double state_bytes(const LayoutEstimate& of, const Layout& layout, const Held& parameters) {
  const double ranks = data_ranks(of.space, layout) * layout.cp / layout.dp_replicate;
  const double expert_ranks =
      static_cast<double>(of.space.world) / (static_cast<double>(layout.pp) * layout.ep * layout.etp);
  const double divided =
      parameters.dense / std::max(1.0, ranks) + parameters.experts / std::max(1.0, expert_ranks);
  return (of.state.whole * parameters.all() + of.state.divided * divided) /
         std::max(1.0, of.model.parameters);
}

// Tokens of a microbatch on a rank.
double microbatch_tokens(const LayoutSpace& space, const Layout& layout) {
  return static_cast<double>(layout.rows * space.row_length) / layout.cp;
}

// Numbers of layers whose activations are alive, over all live microbatches of a rank.
double live_layers(const LayoutEstimate& of, const Layout& layout) {
  const double more = layout.virtual_stages > 1 ? static_cast<double>(layout.pp - 1) /
                                                      (static_cast<double>(layout.pp) * layout.virtual_stages)
                                                : 0;
  return static_cast<double>(of.model.layers) * (1 + more);
}

double microbatches(const LayoutSpace& space, const Layout& layout) {
  return static_cast<double>(space.global_batch) / data_ranks(space, layout) /
         static_cast<double>(layout.rows);
}

}  // namespace

ModelFigures figures_of(const PreparedModel& model, int64_t row_length) {
  ModelFigures out;
  const Node keys = config::read_text(model.spec->config_json("bfloat16"), "config.json");
  out.hidden = static_cast<double>(number_of(keys, {"hidden_size", "n_embd"}));
  out.layers = number_of(keys, {"num_hidden_layers", "n_layer"});
  out.heads = number_of(keys, {"num_attention_heads", "n_head"});
  out.key_value_heads = number_of(keys, {"num_key_value_heads"});
  out.experts = number_of(keys, {"n_routed_experts", "num_experts", "num_local_experts"});
  out.top_k = std::max<int64_t>(1, number_of(keys, {"num_experts_per_tok"}));
  out.flops_per_token = model.spec->flops_per_token(row_length);
  out.intermediate = static_cast<double>(number_of(keys, {"intermediate_size", "n_inner"}));
  const Units units = model.make();
  const WholeModel whole = whole_model(units);
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (const ParameterSlot& slot : whole.slots[unit]) {
      const auto count = static_cast<double>(slot.tensor->numel());
      out.parameters += count;
      if (!is_layer(whole.units[unit])) out.outer += count;
    }
  for (const ExpertLayer& layer : whole.expert_layers)
    out.of_experts += static_cast<double>(layer.parameters);
  if (out.experts > 0) {
    const int64_t width = number_of(keys, {"moe_intermediate_size"});
    out.expert_width = width > 0 ? width : number_of(keys, {"intermediate_size"});
    // A selected expert also keeps its copy of the token.
    out.intermediate =
        static_cast<double>(out.top_k) * (static_cast<double>(out.expert_width) + out.hidden / 3);
  }
  return out;
}

double LayoutEstimate::least_memory(const Layout& layout) const {
  const double kept = layout.recomputation == "none" ? kLeastKept : kKeptOfRecomputed;
  const double activations = 2 * kept * microbatch_tokens(space, layout) * model.hidden *
                             static_cast<double>(model.layers) / layout.tp;
  return state_bytes(*this, layout, held(model, layout)) + activations;
}

double LayoutEstimate::memory(const Layout& layout) const {
  Held parameters = held(model, layout);
  // The first and the last stage have the units outside of the layers.
  if (layout.pp > 2) parameters.dense += model.outer / layout.tp * (0.5 - 1.0 / layout.pp);
  double bytes = state_bytes(*this, layout, parameters);
  const bool keeps_whole = layout.pp > 1 || !layout.reshards;
  if (space.has_reshard && keeps_whole) bytes += kBytesOfWholeParameter * parameters.all();
  if (space.has_deferral && layout.defers && microbatches(space, layout) > 1)
    bytes += kBytesOfGradient * parameters.all();
  const double whole_layer = kKeptOfLayer * model.hidden + kKeptOfMlp * model.intermediate;
  const double kept = layout.recomputation == "full" ? kKeptOfRecomputed * model.hidden
                      : layout.recomputation == "selective"
                          ? kKeptSelectively * model.hidden + model.intermediate
                          : whole_layer;
  const double working = layout.recomputation == "none" ? 0 : 2 * whole_layer;
  return bytes +
         2 * microbatch_tokens(space, layout) / layout.tp * (kept * live_layers(*this, layout) + working);
}

double LayoutEstimate::seconds(const Layout& layout) const {
  const double dp = data_ranks(space, layout), layers = static_cast<double>(model.layers);
  const double tokens = static_cast<double>(space.global_batch) * static_cast<double>(space.row_length);
  const double recomputed = layout.recomputation == "full"        ? 4.0 / 3
                            : layout.recomputation == "selective" ? 1.12
                                                                  : 1;
  const c10::ScalarType products = layout.precision.empty() ? dtype : c10::kFloat8_e4m3fn;
  const double rate = machine.peak(products) * machine.efficiency(products);
  double out = kOthers * model.flops_per_token * tokens * recomputed / space.world / std::max(rate, 1.0);
  // Ranks of tensor parallelism repeat the work of parameters that are not split.
  const double of_experts = model.experts > 0 ? 6 * model.of_experts * static_cast<double>(model.top_k) /
                                                    static_cast<double>(model.experts) /
                                                    std::max(1.0, model.flops_per_token)
                                              : 0;
  out *= 1 + std::max(0.0, 1 - of_experts) * model.unsplit * (layout.tp - 1);
  const double own_tokens = tokens / dp / layout.cp;
  const double count = microbatches(space, layout);
  // Small microbatches use the device less efficiently.
  out *= 1 + 400 / microbatch_tokens(space, layout);
  const double link = std::max(machine.node_bandwidth, 1.0),
               network = std::max(machine.network_bandwidth, 1.0);
  if (layout.tp > 1) out += own_tokens * model.hidden * 2 * 4 * layers / layout.pp * recomputed / link;
  const double own_layers = count * layers / layout.pp * recomputed;
  const double exchanges = layout.recomputation == "full" ? 3 : 2, layers_of_rank = layers / layout.pp;
  const auto sent = static_cast<double>(layout.ep > 1 ? std::min<int64_t>(model.top_k, layout.ep) : 1);
  // Bytes of the tokens that a rank sends to experts and gets back in a layer.
  const double bytes = own_tokens / layout.tp * model.hidden * 2 * 2 * sent * exchanges;
  if (layout.ep > 1) {
    const double beyond =
        std::max(0.0, 1 - static_cast<double>(machine.node_devices) / (layout.ep * layout.etp));
    out += bytes * layers_of_rank * (beyond / network + (1 - beyond) / link);
  }
  if (layout.etp > 1) out += bytes * layers_of_rank * (layout.etp - 1) / link;
  // Short kernels and short collectives take the time of their launches.
  out = std::max(out, own_layers * kKernels * machine.launch_seconds);
  if (layout.tp > 1) out += own_layers * kExchanges * machine.collective_seconds;
  if (layout.pp > 1) out *= 1 + (layout.pp - 1) / (count * layout.virtual_stages);
  // All-gathers overlap with computation; the longer of the two counts. Parameters that are always sharded
  // are gathered, and their gradients reduced, for each microbatch.
  const bool is_sharded = state.whole < state.divided / 10;
  const bool gathers_again = is_sharded && layout.pp == 1 && layout.reshards;
  const bool reduces_again = space.has_deferral ? !layout.defers : gathers_again;
  const auto moving = [&](double parameters, double ranks, double on_node) {
    if (ranks <= 1) return 0.0;
    const double bandwidth = ranks > on_node ? std::min(link, network * std::max(1.0, on_node)) : link;
    return parameters * 2 * ((gathers_again ? 2 * count : 1) + (reduces_again ? count : 1)) / bandwidth;
  };
  const Held own = held(model, layout);
  const auto node = static_cast<double>(machine.node_devices);
  const double expert_ranks =
      static_cast<double>(space.world) / (static_cast<double>(layout.pp) * layout.ep * layout.etp);
  const double beside =
      moving(own.dense, dp * layout.cp / layout.dp_replicate, node / layout.tp) +
      moving(own.experts, expert_ranks / layout.dp_replicate, node / (layout.ep * layout.etp));
  return std::max(out, beside) + 0.05 * beside;
}

}  // namespace heddle
