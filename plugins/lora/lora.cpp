// Finds the layers, freezes the parameters, adds the adapters.
#include "lora.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "adapters.h"
#include "files.h"
#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "matcher.h"

namespace heddle::lora {
namespace {

struct Found {
  std::string path;
  Linear* layer;
};
// Layers with one parent are computed together where they get one input.
using Blocks = std::map<std::string, std::vector<Found>>;

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

[[noreturn]] void refuse_experts(const std::string& where, const std::string& path) {
  throw Error(ErrorCode::not_built, where,
              "adapters of experts are not built yet, and a pattern of target_modules matches '" + path + "'",
              "name the linear layers: target_modules: '*_proj'");
}

class Search {
 public:
  Search(const Matcher& matcher, const std::string& where) : matcher_(matcher), where_(where) {}

  void look_at(Units& units) {
    for (const auto& unit : units) {
      auto* known = dynamic_cast<ModuleUnit*>(unit.get());
      if (known == nullptr)
        throw Error(ErrorCode::config, where_,
                    "the unit '" + std::string(unit->name()) +
                        "' is a foreign model, whose layers cannot be given adapters",
                    "make it of heddle's modules, or leave peft out");
      known->visit([&](const std::string& path, Module& module) { look_at(path, module); });
    }
    if (blocks.empty()) refuse_nothing();
  }

  // The patterns that match no linear layer.
  std::vector<std::string> warnings() const {
    std::vector<std::string> out;
    for (const Pattern& pattern : matcher_.targets())
      if (used_.count(pattern.text()) == 0)
        out.push_back(where_ + ": '" + pattern.text() + "' of target_modules " + matched(pattern));
    return out;
  }

  Blocks blocks;

 private:
  void look_at(const std::string& path, Module& module) {
    const Role role = module.traits().role;
    if (role == Role::experts && matcher_.takes_experts(path)) refuse_experts(where_, path);
    auto* layer = role == Role::projection ? dynamic_cast<Linear*>(&module) : nullptr;
    if (layer != nullptr) linears_.push_back(path);
    for (const Pattern& pattern : matcher_.targets())
      if (pattern.matches(path)) (layer != nullptr ? used_ : others_).emplace(pattern.text(), path);
    if (layer != nullptr && matcher_.takes_linear(path)) blocks[parent_of(path)].push_back({path, layer});
  }

  std::string matched(const Pattern& pattern) const {
    const auto other = others_.find(pattern.text());
    if (other == others_.end()) return "matches no module";
    return "matches '" + other->second + "', which is no linear layer";
  }

  [[noreturn]] void refuse_nothing() const {
    std::string what = "no linear layer is left to get an adapter";
    if (!matcher_.targets().empty()) {
      const Pattern& first = matcher_.targets().front();
      what = "no linear layer gets an adapter: '" + text::excerpt(first.text()) + "' of target_modules " +
             matched(first);
    }
    const std::vector<std::string> some(linears_.begin(),
                                        linears_.begin() + std::min<size_t>(linears_.size(), 3));
    throw Error(ErrorCode::config, where_, what,
                "a pattern is the whole path, and `*` is any characters: '*_proj'; layers are such as " +
                    text::join(some));
  }

  const Matcher& matcher_;
  std::string where_;
  std::vector<std::string> linears_;
  std::map<std::string, std::string> used_, others_;  // by pattern, the first module that it matches
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

}  // namespace

Transformed Lora::apply(Units& units, const TransformRun& run) const {
  const Matcher matcher(config_, run.where);
  Search search(matcher, run.where);
  search.look_at(units);
  Transformed out;
  out.frozen = freeze(units);
  const Shape shape{config_.dim, static_cast<double>(config_.alpha) / static_cast<double>(config_.dim),
                    config_.a_init == "xavier"};
  std::vector<Adapted> adapted;
  for (const auto& [parent, layers] : search.blocks) {
    auto adapters = std::make_shared<Adapters>(shape.scale);
    for (const Found& found : layers) {
      adapted.push_back({found.path, found.layer->weight.sizes().vec()});
      adapters->add(*found.layer, shape);
      out.added.push_back(found.path + ".lora_A.weight");
      out.added.push_back(found.path + ".lora_B.weight");
    }
    Adapters::link(std::move(adapters));
  }
  out.note = "adapters of rank " + std::to_string(config_.dim) + " on " + std::to_string(adapted.size()) +
             (adapted.size() == 1 ? " layer" : " layers");
  out.base_elsewhere = true;
  out.warnings = search.warnings();
  if (matcher.is_default())
    out.warnings.push_back(run.where +
                           ": No modules specified for LoRA. Will use target_modules='*_proj' by default.");
  std::string why;
  out.files = peft_files(config_, adapted, run, why);
  if (!out.files)
    out.warnings.push_back(run.where + ": checkpoints have no adapter_model.safetensors: " + why +
                           ", where PEFT makes one adapter");
  return out;
}

std::string Lora::setting() const {
  std::string out = "dim " + std::to_string(config_.dim) + ", alpha " + std::to_string(config_.alpha) +
                    ", lora_A_init " + config_.a_init;
  if (config_.match_all_linear) out += ", match_all_linear";
  for (const std::string& word : config_.target_modules.words) out += ", " + word;
  for (const std::string& word : config_.exclude_modules.words) out += ", not " + word;
  return out;
}

}  // namespace heddle::lora
