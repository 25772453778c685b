// Traversal of a model's modules, with a matcher.
#include "search.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/router.h"

namespace heddle::lora {
namespace {

Adapting by_rows(Adapting parts) {
  std::sort(parts.begin(), parts.end(), [](const Found& a, const Found& b) {
    return a.in_files.rows.front().first < b.in_files.rows.front().first;
  });
  return parts;
}

}  // namespace

void Search::look_at(Units& units) {
  for (const auto& unit : units) {
    auto* known = dynamic_cast<ModuleUnit*>(unit.get());
    if (known == nullptr)
      throw Error(ErrorCode::config, where_,
                  "the unit '" + std::string(unit->name()) +
                      "' is a foreign model, whose layers cannot be given adapters",
                  "build it from heddle's modules, or remove peft");
    known->visit([&](const std::string& path, Module& module) { look_at(path, module); });
  }
  find_names();
  choose();
  for (FoundExperts& found : experts) found.choices = choices_[block_of(found.path)];
  if (blocks.empty() && experts.empty()) refuse_nothing();
}

void Search::look_at(const std::string& path, Module& module) {
  if (const auto* router = model::as<Router>(module)) choices_[block_of(path)] = router->config().rule.top_k;
  const Role role = module.traits().role;
  auto* layer = role == Role::projection ? model::as<Linear>(module) : nullptr;
  if (layer != nullptr) return (void)linears_.push_back({path, layer, file_layer(spec_, path, *layer)});
  auto* of_experts = role == Role::experts ? model::as<Experts>(module) : nullptr;
  has_experts = has_experts || of_experts != nullptr;
  for (const Pattern& pattern : matcher_.targets())
    if (pattern.matches(path)) (of_experts != nullptr ? used_ : others_).emplace(pattern.text(), path);
  if (of_experts != nullptr && matcher_.takes_experts(path)) experts.push_back({path, of_experts, 1});
}

// Patterns match the names in files, because AutoModel's model has the layers of the files. A pattern that
// matches none of them is matched with heddle's own names.
void Search::find_names() {
  for (const auto* patterns : {&matcher_.targets(), &matcher_.excluded()})
    for (const Pattern& pattern : *patterns)
      if (std::any_of(linears_.begin(), linears_.end(),
                      [&](const Found& layer) { return pattern.matches(layer.in_files.path); }))
        names_in_files_.insert(pattern.text());
}

bool Search::matches(const Pattern& pattern, const Found& layer) const {
  return pattern.matches(names_in_files_.count(pattern.text()) != 0 ? layer.in_files.path : layer.path);
}

void Search::choose() {
  std::map<std::string, Adapting> chosen;  // by path in files
  std::map<std::string, size_t> parts;     // of all layers
  std::vector<const Found*> in_order;
  for (const Found& layer : linears_) {
    ++parts[layer.in_files.path];
    for (const Pattern& pattern : matcher_.targets())
      if (matches(pattern, layer)) used_.emplace(pattern.text(), layer.path);
    if (!matcher_.takes_linear([&](const Pattern& pattern) { return matches(pattern, layer); })) continue;
    in_order.push_back(&layer);
    chosen[layer.in_files.path].push_back(layer);
  }
  std::set<std::string> joined;
  for (const Found* layer : in_order) {
    const std::string& path = layer->in_files.path;
    std::vector<Adapting>& block = blocks[block_of(layer->path)];
    if (chosen[path].size() != parts[path])
      block.push_back({*layer});
    else if (joined.insert(path).second)
      block.push_back(by_rows(chosen[path]));
  }
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
  return "matches '" + other->second + "', which is not a linear layer";
}

void Search::refuse_nothing() const {
  std::string what = "the patterns match no linear layer, so no adapter would be created";
  if (!matcher_.targets().empty()) {
    const Pattern& first = matcher_.targets().front();
    what = "no linear layer would get an adapter: '" + text::excerpt(first.text()) + "' of target_modules " +
           matched(first);
  }
  std::vector<std::string> some;
  for (size_t i = 0; i < std::min<size_t>(linears_.size(), 3); ++i) some.push_back(linears_[i].in_files.path);
  throw Error(ErrorCode::config, where_, what,
              "write patterns of the whole path, in which `*` matches any characters, such as '*_proj'; the "
              "model has layers such as " +
                  text::join(some));
}

}  // namespace heddle::lora
