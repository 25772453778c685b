// Transform that freezes a model and adds adapters to its linear layers.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "adapters.h"
#include "config.h"
#include "files.h"
#include "heddle/plugin/transform.h"
#include "search.h"

namespace heddle::lora {
namespace {

class Lora : public ITransform {
 public:
  explicit Lora(Config config) : config_(std::move(config)) {}
  // Throws Error{config} if no layer matches, or if the adapters of experts would have rank 0.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override;

 private:
  Config config_;
};

std::vector<std::string> freeze(Units& units) {
  std::set<std::string> names;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (!slot.trainable()) continue;
      slot.tensor->set_requires_grad(false);
      names.insert(slot.name);
    }
  return {names.begin(), names.end()};
}

using Names = std::map<const at::Tensor*, std::string>;

// Returns the parameters' names. A tied head has the name of the embedding's weight.
Names names_of(Units& units) {
  Names names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) names[slot.tensor] = slot.name;
  return names;
}

std::string name_of_weight(const Found& found, const Names& names) {
  for (const ParameterSlot& slot : found.layer->slots())
    if (slot.tensor == &found.layer->weight) return names.at(slot.tensor);
  return "";
}

void warn_of_tied(const Blocks& blocks, const Names& names, const std::string& where, Transformed& out) {
  for (const auto& [parent, block] : blocks)
    for (const Adapting& parts : block)
      for (const Found& part : parts)
        if (const std::string weight = name_of_weight(part, names); weight != part.path + ".weight")
          out.warnings.push_back(where + ": '" + part.path + "' is tied to '" + weight +
                                 "', so its adapter cannot be merged: heddle generate and heddle convert "
                                 "refuse it; add it to exclude_modules");
}

void add_magnitude(const Found& found, const Names& names, Transformed& out) {
  const std::string name = found.path + ".lora_magnitude_vector.weight";
  out.added.push_back(name);
  for (const ParameterSlot& slot : found.layer->slots())
    if (slot.tensor == &found.layer->weight) out.derived[name] = from_rows(names.at(slot.tensor), slot);
}

// The layers of one parent share a link.
std::vector<Adapted> add_to(const Blocks& blocks, const Shape& shape, const Names& names, Transformed& out) {
  std::vector<Adapted> adapted;
  for (const auto& [parent, block] : blocks) {
    auto adapters = std::make_shared<Adapters>(shape);
    for (const Adapting& parts : block) {
      out.added.push_back(parts.front().path + ".lora_A.weight");
      adapted.push_back({parts.front().in_files, parts.front().layer->weight.size(1), {}});
      for (const Found& part : parts) {
        const bool is_first = &part == &parts.front();
        is_first ? adapters->add(*part.layer, part.path) : adapters->add_part(*part.layer, part.path);
        adapted.back().parts.push_back({part.path, part.layer->weight.size(0), part.in_files});
        out.added.push_back(part.path + ".lora_B.weight");
        if (shape.dora) add_magnitude(part, names, out);
      }
    }
    Adapters::link(std::move(adapters));
  }
  return adapted;
}

std::string number_of(size_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string note_of(const Config& config, size_t layers, const std::vector<AdaptedExperts>& experts) {
  std::string out = std::string(config.use_dora ? "DoRA " : "") + "adapters of rank " +
                    std::to_string(config.dim) + " on " + number_of(layers, "layer");
  if (experts.empty()) return out;
  return out + ", and of rank " + std::to_string(experts.front().rank) + " on the experts of " +
         number_of(experts.size(), "layer");
}

Shape shape_of(const Config& config, const std::string& where) {
  Shape out{config.dim, static_cast<double>(config.alpha) / static_cast<double>(config.dim),
            config.a_init == "xavier", config.dropout, config.dropout_position == "pre"};
  out.dora = config.use_dora;
  const std::string& word = config.dtype.word;
  if (word == "bfloat16") out.dtype = at::kBFloat16;
  if (word == "float16") out.dtype = at::kHalf;
  if (word == "float32") out.dtype = at::kFloat;
  if (!word.empty() && !out.dtype)
    throw Error(ErrorCode::config, where + ".lora_dtype", "'" + word + "' is not a dtype of adapters",
                "use float32, bfloat16 or float16");
  return out;
}

void refuse_of_experts(const Config& config, const FoundExperts& found, const std::string& where) {
  if (config.use_dora)
    throw Error(ErrorCode::config, where + ".use_dora",
                "DoRA is not supported for MoE expert modules in Automodel yet.",
                "set target_modules that do not match '" + found.path + "'");
  if (!config.dtype.word.empty())
    throw Error(ErrorCode::not_built, where + ".lora_dtype",
                "adapters of experts have the dtype of the experts ('" + found.path + "')",
                "remove lora_dtype, or set target_modules that do not match experts");
}

Transformed Lora::apply(Units& units, const TransformRun& run) const {
  const Matcher matcher(config_, run.where);
  Search search(matcher, run.where, run.spec);
  search.look_at(units);
  const Names names = names_of(units);
  Transformed out;
  out.frozen = freeze(units);
  out.warnings = search.warnings();
  const Shape shape = shape_of(config_, run.where);
  if (!search.experts.empty()) refuse_of_experts(config_, search.experts.front(), run.where);
  const std::vector<Adapted> adapted = add_to(search.blocks, shape, names, out);
  const std::vector<AdaptedExperts> experts =
      adapt_experts(search.experts, config_, run.spec, run.where, out);
  warn_of_tied(search.blocks, names, run.where, out);
  if (search.has_experts)
    if (const std::string path = taken_for_experts(adapted); !path.empty())
      out.warnings.push_back(run.where + ": PEFT 0.21 reads these adapters incorrectly, because it takes '" +
                             path + "' for an expert; heddle reads them, and heddle convert merges them");
  out.note = note_of(config_, adapted.size(), experts);
  out.base_elsewhere = true;
  if (matcher.is_default())
    out.warnings.push_back(run.where +
                           ": No modules specified for LoRA. Will use target_modules='*_proj' by default.");
  out.files = peft_files(config_, adapted, experts, run, out.no_files);
  if (!out.files)
    out.warnings.push_back(run.where +
                           ": checkpoints have no adapter_model.safetensors, and heddle generate and "
                           "heddle convert cannot read them: " +
                           out.no_files);
  return out;
}

std::string Lora::setting() const {
  std::string out = "dim " + std::to_string(config_.dim) + ", alpha " + std::to_string(config_.alpha) +
                    ", lora_A_init " + config_.a_init;
  if (config_.use_dora) out += ", use_dora";
  if (config_.match_all_linear) out += ", match_all_linear";
  for (const std::string& word : config_.target_modules.words) out += ", " + word;
  for (const std::string& word : config_.exclude_modules.words) out += ", not " + word;
  if (config_.dropout == 0) return out;
  return out + "; dropout " + config::to_json(Node::real(config_.dropout)) + " " + config_.dropout_position;
}

}  // namespace
}  // namespace heddle::lora

HEDDLE_PLUGIN("lora", "0.1.0", "transform peft") {
  using namespace heddle::lora;
  auto& offered = plugin.transform<Lora>("peft", schema());
  offered.order = 100;  // after freeze_config, so parameters that it froze stay frozen
}
