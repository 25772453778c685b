// What a plan gives a module, and what a module does with rows of tokens.
#include "site_checks.h"

#include <algorithm>
#include <utility>

#include "heddle/base/text.h"

namespace heddle::tensor {
namespace {

// Styles allowed for a module of this role; messages propose the first.
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
    for (const Style style : allowed) words.push_back(word_of(style));
    refuse(
        site,
        "the style '" + word_of(*site.style) + "' does not fit '" + site.path + "', a module of kind " + kind,
        "it takes " + text::join(words, " or "));
  }
  if (is(site, Style::sequence_parallel) && !sequence_parallel)
    refuse(site, "the style 'sequence_parallel' of '" + site.path + "' needs sequence_parallel: true",
           "set distributed.sequence_parallel, or leave norms out of the plan");
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
                  (has_own_rows(site) ? "has parameters of its own beside linear layers"
                                      : "does not declare what it does with a part of the tokens"),
              "set sequence_parallel: false for this model");
}

}  // namespace heddle::tensor
