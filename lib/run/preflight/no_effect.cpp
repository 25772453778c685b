// Patterns, batches and validations that would do nothing.
#include "lib/run/preflight/no_effect.h"

#include <set>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

struct Found {
  bool named = false, trained = false;
};

[[noreturn]] void refuse_group(const std::string& pattern, const std::string& where, const Found& found,
                               const std::string& example) {
  if (!found.named)
    throw Error(ErrorCode::config, where,
                "no parameter's name holds a match of '" + text::excerpt(pattern) + "'",
                "names are such as '" + example + "'");
  const std::string all = "all parameters that '" + text::excerpt(pattern) + "' matches ";
  if (!found.trained)
    throw Error(ErrorCode::config, where, all + "are frozen", "freeze fewer, or leave the entry out");
  throw Error(ErrorCode::config, where, all + "belong to the entries before it",
              "the first entry that matches counts: put the narrower pattern first");
}

}  // namespace

void check_groups(Units& units, const OptimizerSection& optimizer) {
  std::set<std::string> taken;
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    const std::string &pattern = optimizer.groups[i].pattern, &where = optimizer.groups_where[i];
    const text::Pattern expression(pattern, where);
    Found found;
    bool acts = false;
    std::set<std::string> own;
    for (const auto& unit : units)
      for (const ParameterSlot& slot : unit->parameters()) {
        if (!expression.found_in(slot.name)) continue;
        found.named = true;
        found.trained = found.trained || slot.trainable();
        acts = acts || (slot.trainable() && !taken.contains(slot.name));
        own.insert(slot.name);
      }
    if (!acts) refuse_group(pattern, where, found, units.front()->parameters().front().name);
    taken.merge(own);
  }
}

void check_batch(const StepSection& steps, int64_t rows, int64_t packed) {
  if (steps.global_batch_size <= rows) return;
  const auto count = [](int64_t number, const std::string& one) {
    return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
  };
  throw Error(
      ErrorCode::config, steps.where,
      "global_batch_size (" + std::to_string(steps.global_batch_size) +
          ") is larger than the data set: it has " +
          (packed > 0 ? count(rows, "pack") + " of " + count(packed, "sample") : count(rows, "sample")),
      "make step_scheduler.global_batch_size at most " + std::to_string(rows) +
          (packed > 0 ? ", packed_sequence.packed_sequence_size smaller" : "") + ", or give more data");
}

std::string no_validation_text(const Recipe& recipe) {
  const auto& every = recipe.steps.val_every_steps;
  if (!every || !recipe.validation.empty() || !recipe.samples.prompts.empty()) return "";
  return recipe.steps.val_where + " (" + std::to_string(*every) +
         ") has no effect: there is no validation_dataset";
}

}  // namespace heddle
