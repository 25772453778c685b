// Enumerates the layouts of a world and writes them into recipes.
#include "lib/run/plan/layout.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr int kMostVirtualStages = 8;
constexpr int64_t kMostRows = 16;  // maximum number of samples per microbatch

// Returns the divisors of a number, up to `most`.
std::vector<int> divisors(int64_t number, int64_t most) {
  std::vector<int> out;
  for (int64_t each = 1; each <= std::min(number, most); ++each)
    if (number % each == 0) out.push_back(static_cast<int>(each));
  return out;
}

class Enumeration {
 public:
  explicit Enumeration(const LayoutSpace& space) : space_(space) {}

  std::vector<Layout> run() {
    for (const int tp : divisors(space_.world, space_.has_tp ? space_.node_devices : 1))
      for (const int cp : divisors(space_.world / tp, space_.has_cp ? 8 : 1))
        for (const int pp :
             divisors(space_.world / (tp * cp), space_.has_pp ? std::max<int64_t>(1, space_.layers) : 1))
          if (pp == 1 || space_.ranks_of_kind == 0 || space_.ranks_of_kind % (space_.world / pp) == 0)
            sizes(tp, cp, pp);
    return std::move(out_);
  }

 private:
  void sizes(int tp, int cp, int pp) {
    const int dp = space_.world / (tp * cp * pp);
    if (space_.global_batch % dp != 0 || (space_.heads > 0 && space_.heads % tp != 0) ||
        (space_.key_value_heads > 0 && space_.key_value_heads % tp != 0))
      return;
    Layout layout{space_.strategy};
    layout.tp = tp;
    layout.cp = cp;
    layout.pp = pp;
    layout.sequence_parallel = tp > 1 && space_.has_sequence_parallel;
    for (const int ep : divisors(space_.world / pp, std::max<int64_t>(1, space_.experts))) {
      if (space_.experts % ep != 0) continue;
      layout.ep = ep;
      for (const int etp : parts_of_expert(layout)) {
        layout.etp = etp;
        for (const std::string& method : cp_methods(layout)) {
          layout.cp_method = method;
          for (const int replicas : replicas_of(dp)) {
            layout.dp_replicate = replicas;
            batches(layout, dp);
          }
        }
      }
    }
  }

  // Returns the numbers of ranks that share an expert: 1, or those of tensor parallelism.
  std::vector<int> parts_of_expert(const Layout& layout) const {
    std::vector<int> out = {1};
    for (const int parts : divisors(space_.world / (layout.pp * layout.ep), space_.node_devices)) {
      const bool is_tried = parts == layout.tp || is_fixed("etp_size", std::to_string(parts));
      if (parts > 1 && is_tried && space_.expert_width > 0 && space_.expert_width % parts == 0)
        out.push_back(parts);
    }
    return out;
  }

  // Returns the methods of context parallelism that can split the heads of a rank.
  std::vector<std::string> cp_methods(const Layout& layout) const {
    if (layout.cp == 1) return {""};
    std::vector<std::string> out = {"allgather", "ring"};
    const int64_t ranks = int64_t{layout.tp} * layout.cp;
    if (space_.heads % ranks == 0 && space_.key_value_heads % ranks == 0) out.emplace_back("ulysses");
    return out;
  }

  bool is_fixed(const std::string& key, const std::string& value) const {
    return std::find(space_.fixed.begin(), space_.fixed.end(), std::pair(key, value)) != space_.fixed.end();
  }

  // Returns the numbers of replicas to try: full replication, or one replica per several nodes.
  std::vector<int> replicas_of(int dp) const {
    std::vector<int> out = {1};
    if (!space_.has_replicas) return out;
    for (const int count : divisors(dp, dp - 1))
      if (count > 1) out.push_back(count);
    return out;
  }

  void batches(Layout layout, int dp) {
    const int64_t own = space_.global_batch / dp;
    for (const int rows : divisors(own, kMostRows)) {
      layout.rows = rows;
      if (layout.pp == 1) {
        recomputations(layout);
        continue;
      }
      if (own / rows < layout.pp) continue;  // the bubble would exceed the work
      layout.schedule = "1f1b";
      layout.virtual_stages = 1;
      if (space_.ranks_of_kind > 0) layout.stage_layers = even_layers(space_.layers, layout.pp);
      recomputations(layout);
      if (space_.ranks_of_kind > 0) continue;
      for (int each = 2; each <= kMostVirtualStages; each *= 2) {
        if (!has_stages(layout.pp, each) || (own / rows) % layout.pp != 0) continue;
        layout.schedule = "interleaved1f1b";
        layout.virtual_stages = each;
        recomputations(layout);
      }
    }
  }

  // Whether stages with equal numbers of layers, except for the last one, give this number of stages per
  // rank.
  bool has_stages(int64_t pp, int64_t each) const {
    const int64_t layers = (space_.layers + pp * each - 1) / (pp * each),
                  stages = (space_.layers + layers - 1) / layers;
    return pp * each <= space_.layers && (stages + pp - 1) / pp == each;
  }

  void recomputations(Layout layout) {
    for (const char* recomputation : {"none", "selective", "full"}) {
      layout.recomputation = recomputation;
      for (const bool reshards : {true, false}) {
        layout.reshards = reshards;
        if ((!space_.has_reshard || layout.pp > 1) && !reshards) continue;
        reductions(layout);
      }
    }
  }

  // Without a pipeline, gradients can be reduced after each microbatch.
  void reductions(Layout layout) {
    const int64_t dp = space_.world / (layout.tp * layout.cp * layout.pp);
    const bool has_choice = space_.has_deferral && layout.pp == 1 && space_.global_batch / dp > layout.rows;
    for (const bool defers : {true, false}) {
      layout.defers = defers;
      if (!defers && !has_choice) continue;
      precisions(layout);
    }
  }

  void precisions(Layout layout) {
    if (is_kept(layout)) out_.push_back(layout);
    for (const std::string& precision : space_.precisions) {
      layout.precision = precision;
      if (is_kept(layout)) out_.push_back(layout);
    }
  }

  bool is_kept(const Layout& layout) const {
    const auto fields = layout.fields();
    for (const auto& [key, value] : space_.fixed) {
      const auto found = std::find_if(fields.begin(), fields.end(),
                                      [&, name = key](const auto& field) { return field.first == name; });
      if (found == fields.end()) {
        std::vector<std::string> names;
        for (const auto& field : fields) names.push_back(field.first);
        throw Error(ErrorCode::usage, "--fix", "'" + key + "' is not a key of a layout",
                    "give one of " + text::join(names, ", "));
      }
      if (found->second != text::lower(value)) return false;
    }
    return true;
  }

  const LayoutSpace& space_;
  std::vector<Layout> out_;
};

}  // namespace

std::vector<int64_t> even_layers(int64_t layers, int64_t stages) {
  std::vector<int64_t> out;
  for (int64_t stage = 0; stage < stages; ++stage)
    out.push_back(layers * (stage + 1) / stages - layers * stage / stages);
  return out;
}

bool is_layer(const std::string& unit) {
  const size_t dot = unit.rfind('.');
  return dot != unit.npos && dot + 1 < unit.size() &&
         unit.find_first_not_of("0123456789", dot + 1) == unit.npos;
}

namespace {

// Returns "[[model.embed_tokens, model.layers.0], [model.layers.1, model.norm]]". Units before the first
// layer are on the first stage, units after the last layer on the last stage.
std::string stages_text(const std::vector<std::string>& units, const std::vector<int64_t>& layers) {
  std::string out;
  size_t stage = 0;
  int64_t left = layers.front();
  for (size_t i = 0; i < units.size(); ++i) {
    if (is_layer(units[i])) {
      if (left == 0 && stage + 1 < layers.size()) {
        left = layers[++stage];
        out += "], [";
      }
      --left;
    }
    out += (out.empty() || out.ends_with("[") ? "" : ", ") + units[i];
  }
  return "[[" + out + "]]";
}

}  // namespace

std::string Layout::text() const {
  std::string out = strategy;
  const auto add = [&](const char* name, int size) {
    if (size > 1) out += std::string(", ") + name + " " + std::to_string(size);
  };
  add("replicas", dp_replicate);
  add("tp", tp);
  add("cp", cp);
  if (cp > 1) out += " (" + cp_method + ")";
  add("ep", ep);
  add("etp", etp);
  add("pp", pp);
  if (pp > 1)
    out += " (" + schedule +
           (virtual_stages > 1 ? ", " + std::to_string(virtual_stages) + " stages per rank)" : ")");
  if (!stage_layers.empty()) {
    std::vector<std::string> counts;
    for (const int64_t count : stage_layers) counts.push_back(std::to_string(count));
    out += ", layers " + text::join(counts, " + ");
  }
  out += ", batch " + std::to_string(rows);
  if (recomputation != "none") out += ", recomputation " + recomputation;
  if (!reshards) out += ", no reshard after forward";
  if (!defers) out += ", reduction per microbatch";
  if (!precision.empty()) out += ", " + precision;
  return out;
}

std::vector<std::pair<std::string, std::string>> Layout::fields() const {
  const auto word = [](bool value) { return std::string(value ? "true" : "false"); };
  return {{"strategy", strategy},
          {"dp_replicate_size", std::to_string(dp_replicate)},
          {"tp_size", std::to_string(tp)},
          {"cp_size", std::to_string(cp)},
          {"cp_method", cp_method},
          {"pp_size", std::to_string(pp)},
          {"ep_size", std::to_string(ep)},
          {"etp_size", std::to_string(etp)},
          {"pp_schedule", schedule},
          {"virtual_stages", std::to_string(virtual_stages)},
          {"local_batch_size", std::to_string(rows)},
          {"activation_checkpointing", recomputation},
          {"reshard_after_forward", word(reshards)},
          {"defer_fsdp_grad_sync", word(defers)},
          {"sequence_parallel", word(sequence_parallel)},
          {"precision", precision}};
}

std::vector<Layout> all_layouts(const LayoutSpace& space) {
  return Enumeration(space).run();
}

Node with_precision(const Node& recipe, const std::string& section) {
  if (section != "te_fp8") return config::with_override(recipe, section + ".enabled", "true");
  const Node* const own = recipe.find(section);
  return own != nullptr && own->is_map() ? recipe : config::with_override(recipe, section, "{}");
}

Node with_layout(const LayoutSpace& space, const Layout& layout) {
  Node out = space.recipe;
  const auto set = [&](const std::string& key, const std::string& value) {
    out = config::with_override(out, key, value);
  };
  const int dp = space.world / (layout.tp * layout.cp * layout.pp);
  if (!layout.strategy.empty()) set("distributed.strategy", layout.strategy);
  set("distributed.dp_size", "none");
  set("distributed.tp_size", std::to_string(layout.tp));
  set("distributed.cp_size", std::to_string(layout.cp));
  set("distributed.pp_size", std::to_string(layout.pp));
  const Node* const section = space.recipe.find("distributed");
  const auto names = [&](const char* key) {
    return section != nullptr && section->is_map() && section->find(key) != nullptr;
  };
  if (space.experts > 0 || names("ep_size")) set("distributed.ep_size", std::to_string(layout.ep));
  if (layout.etp > 1 || names("etp_size")) set("distributed.etp_size", std::to_string(layout.etp));
  if (layout.cp > 1) set("distributed.context.method", layout.cp_method);
  set("distributed.activation_checkpointing",
      layout.recomputation == "none" ? "false" : layout.recomputation);
  if (space.has_replicas || names("dp_replicate_size"))
    set("distributed.dp_replicate_size", std::to_string(layout.dp_replicate));
  if (names("num_distributed_optimizer_instances"))  // Megatron's name of the same size
    set("distributed.num_distributed_optimizer_instances", std::to_string(layout.dp_replicate));
  if (space.has_sequence_parallel)
    set("distributed.sequence_parallel", layout.sequence_parallel ? "true" : "false");
  if (space.has_reshard)
    set("distributed.reshard_after_forward", layout.pp > 1 ? "none" : layout.reshards ? "true" : "false");
  if (space.has_deferral) set("distributed.defer_fsdp_grad_sync", layout.defers ? "true" : "false");
  if (!layout.precision.empty()) out = with_precision(out, layout.precision);
  set("step_scheduler.local_batch_size",
      std::to_string(layout.pp > 1 ? space.global_batch / dp : layout.rows));
  if (layout.pp == 1) {
    set("distributed.pipeline", "none");
    return out;
  }
  const int64_t stages = int64_t{layout.pp} * layout.virtual_stages;
  std::string pipeline =
      "{pp_schedule: " + layout.schedule + ", pp_microbatch_size: " + std::to_string(layout.rows);
  if (layout.virtual_stages > 1)
    pipeline += ", layers_per_stage: " + std::to_string((space.layers + stages - 1) / stages) +
                ", round_virtual_stages_to_pp_multiple: up";
  if (!layout.stage_layers.empty())
    pipeline += ", module_fqns_per_model_part: " + stages_text(space.units, layout.stage_layers);
  set("distributed.pipeline", pipeline + "}");
  return out;
}

}  // namespace heddle
