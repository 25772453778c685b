// Traversal of units, matching of rules with module paths, and the styles that each role allows.
#include "sites.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "heddle/base/text.h"
#include "heddle/model/module_unit.h"

namespace heddle::tensor {
namespace {

void add(Sites& sites, const std::string& path, Module& module, size_t parent) {
  const size_t at = sites.size();
  sites.push_back({path, &module, parent, {}, {}, ""});
  if (parent != Site::kNone) sites[parent].children.push_back(at);
  for (const auto& [name, child] : module.children())
    add(sites, path.empty() ? name : path + "." + name, *child, at);
}

std::string prefix_of(ModuleUnit& unit) {
  std::optional<std::string> prefix;
  unit.visit([&prefix](const std::string& path, Module&) {
    if (!prefix) prefix = path;
  });
  return prefix.value_or("");
}

// Converts "layers.3.mlp" to "layers.*.mlp".
std::string general(const std::string& path) {
  std::string out, segment;
  const auto close = [&] {
    const bool number = !segment.empty() && std::all_of(segment.begin(), segment.end(),
                                                        [](unsigned char c) { return std::isdigit(c); });
    out += number ? "*" : segment;
    segment.clear();
  };
  for (const char c : path) {
    if (c != '.') {
      segment += c;
      continue;
    }
    close();
    out += c;
  }
  close();
  return out;
}

[[noreturn]] void matched_nothing(const Rule& rule, const Sites& sites) {
  std::set<std::string> paths;
  for (const Site& site : sites)
    if (site.module->children().empty() && !site.module->slots().empty()) paths.insert(general(site.path));
  const std::vector<std::string> all(paths.begin(), paths.end());
  const std::string near = text::nearest(rule.pattern, all);
  throw Error(
      ErrorCode::config, rule.where, "no module matches the pattern '" + rule.pattern + "'",
      (near.empty() ? "" : "did you mean '" + near + "'? ") + "the model's paths are " + text::join(all));
}

// Returns the styles allowed for a role. Messages propose the first.
std::vector<Style> styles_of(Role role) {
  switch (role) {
    case Role::projection:
      return {Style::colwise, Style::rowwise, Style::colwise_rep, Style::rowwise_rep, Style::replicated};
    case Role::embedding:
      return {Style::rowwise_rep, Style::rowwise, Style::replicated};
    case Role::norm:
      return {Style::sequence_parallel, Style::replicated_with_grad_allreduce, Style::replicated};
    default:
      return {Style::replicated};
  }
}

bool trains(Module& module) {
  const auto& slots = module.slots();
  return std::any_of(slots.begin(), slots.end(), [](const ParameterSlot& slot) { return slot.trainable(); });
}

}  // namespace

Sites find_sites(Units& units) {
  Sites sites;
  for (const auto& unit : units) {
    auto* known = dynamic_cast<ModuleUnit*>(unit.get());
    if (unit->module() == nullptr || known == nullptr)
      throw Error(ErrorCode::input, "tensor",
                  "the unit '" + std::string(unit->name()) +
                      "' is a foreign model without seams, which tensor parallelism cannot split",
                  "build it from heddle's modules, or set tp_size: 1");
    add(sites, prefix_of(*known), *unit->module(), Site::kNone);
  }
  return sites;
}

void give_styles(Sites& sites, const Rules& rules, Extent extent) {
  for (const Rule& rule : rules) {
    bool any = false;
    for (Site& site : sites) {
      if (!matches(rule.pattern, site.path)) continue;
      any = true;
      if (site.style && *site.style != rule.style)
        throw Error(ErrorCode::config, rule.where,
                    "two styles for '" + site.path + "': " + style_name(*site.style) + " (" + site.where +
                        ") and " + style_name(rule.style) + " (the pattern '" + rule.pattern + "')",
                    "change the patterns so that only one matches");
      site.style = rule.style;
      site.where = rule.where;
    }
    if (!any && extent == Extent::whole_model) matched_nothing(rule, sites);
  }
}

void leave_whole(Sites& sites, int ranks) {
  for (const Site& site : sites) {
    const ModuleTraits traits = site.module->traits();
    const auto divides = [&](const auto& heads) { return heads.second % ranks == 0; };
    if (traits.role != Role::mixer || std::all_of(traits.heads.begin(), traits.heads.end(), divides))
      continue;
    for (const size_t child : site.children) sites[child].style.reset();
  }
}

Rules choose_rules(const Units& units, const Node& tp_plan) {
  if (tp_plan.is_map()) return read_rules(tp_plan);
  Rules own = rules_of(units);
  if (!own.empty()) return own;
  throw Error(ErrorCode::config, "distributed.tp_plan",
              "No tensor-parallel plan is registered for this model: its model family has none",
              "set tp_plan to a map from paths to styles, such as\n    tp_plan: {layers.*.mlp.up: colwise,\n "
              "             layers.*.mlp.down: rowwise}");
}

void refuse(const Site& site, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::config, site.where.empty() ? "distributed.tp_plan" : site.where, what, hint);
}

bool stays_split(const Site& site) {
  return is(site, Style::colwise) || is(site, Style::rowwise);
}

void check_style(const Site& site, bool sequence_parallel) {
  if (!site.style) return;
  const std::string kind(site.module->kind());
  const std::vector<Style> allowed = styles_of(role_of(site));
  if (std::find(allowed.begin(), allowed.end(), *site.style) == allowed.end()) {
    std::vector<std::string> words;
    for (const Style style : allowed) words.push_back(style_name(style));
    refuse(site,
           "the style '" + style_name(*site.style) + "' does not fit '" + site.path + "', a module of kind " +
               kind,
           "use " + text::join(words, " or "));
  }
  if (is(site, Style::sequence_parallel) && !sequence_parallel)
    refuse(site, "the style 'sequence_parallel' of '" + site.path + "' needs sequence_parallel: true",
           "set distributed.sequence_parallel: true, or remove norms from the plan");
}

bool is_mixture(const Sites& sites, const Site& site) {
  return std::any_of(site.children.begin(), site.children.end(), [&](size_t child) {
    const Role role = role_of(sites[child]);
    return role == Role::router || role == Role::experts;
  });
}

bool has_own_rows(const Site& site) {
  return role_of(site) == Role::other && !site.module->slots().empty() &&
         site.module->traits().tokens == TokenUse::each_alone;
}

void check_known(const Site& site, bool has_layers, bool in_block) {
  const Role role = role_of(site);
  const bool is_split_with_layers = has_layers && (role == Role::attention || role == Role::mixer);
  if (site.module->slots().empty() || role == Role::projection || role == Role::embedding ||
      role == Role::norm || is_split_with_layers || (has_own_rows(site) && !has_layers && !in_block) ||
      (role == Role::other && !trains(*site.module)))
    return;
  throw Error(ErrorCode::config, "distributed.sequence_parallel",
              "'" + site.path + "' (" + std::string(site.module->kind()) + ") " +
                  (has_own_rows(site) ? "has parameters outside of linear layers"
                                      : "does not declare how it handles a part of the tokens"),
              "set sequence_parallel: false for this model");
}

}  // namespace heddle::tensor
