// Walks the modules of a model and asks the matcher.
#include "search.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/router.h"

namespace heddle::lora {
namespace {

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

}  // namespace

void Search::look_at(Units& units) {
  for (const auto& unit : units) {
    auto* known = dynamic_cast<ModuleUnit*>(unit.get());
    if (known == nullptr)
      throw Error(ErrorCode::config, where_,
                  "the unit '" + std::string(unit->name()) +
                      "' is a foreign model, whose layers cannot be given adapters",
                  "make it of heddle's modules, or leave peft out");
    known->visit([&](const std::string& path, Module& module) { look_at(path, module); });
  }
  for (FoundExperts& found : experts) found.choices = choices_[parent_of(found.path)];
  if (blocks.empty() && experts.empty()) refuse_nothing();
}

void Search::look_at(const std::string& path, Module& module) {
  if (const auto* router = model::as<Router>(module)) choices_[parent_of(path)] = router->config().rule.top_k;
  const Role role = module.traits().role;
  auto* layer = role == Role::projection ? model::as<Linear>(module) : nullptr;
  auto* of_experts = role == Role::experts ? model::as<Experts>(module) : nullptr;
  if (layer != nullptr) linears_.push_back(path);
  for (const Pattern& pattern : matcher_.targets())
    if (pattern.matches(path))
      (layer != nullptr || of_experts != nullptr ? used_ : others_).emplace(pattern.text(), path);
  if (layer != nullptr && matcher_.takes_linear(path)) blocks[parent_of(path)].push_back({path, layer});
  if (of_experts != nullptr && matcher_.takes_experts(path)) experts.push_back({path, of_experts, 1});
}

std::vector<std::string> Search::warnings() const {
  std::vector<std::string> out;
  for (const Pattern& pattern : matcher_.targets())
    if (used_.count(pattern.text()) == 0)
      out.push_back(where_ + ": '" + pattern.text() + "' of target_modules " + matched(pattern));
  return out;
}

std::string Search::matched(const Pattern& pattern) const {
  const auto other = others_.find(pattern.text());
  if (other == others_.end()) return "matches no module";
  return "matches '" + other->second + "', which is no linear layer";
}

void Search::refuse_nothing() const {
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

}  // namespace heddle::lora
