// Chooses the layers; te_products.cpp computes.
#include "te_fp8.h"

#include <array>
#include <span>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "products.h"

namespace heddle::fp8 {
namespace {

constexpr const char* kLink = "te_fp8";
constexpr std::array<std::pair<const char*, Recipe>, 3> kRecipes = {
    {{"current", Recipe::current}, {"block", Recipe::block}, {"mxfp8", Recipe::mxfp8}}};

Recipe recipe_of(const std::string& name) {
  for (const auto& [word, recipe] : kRecipes)
    if (name == word) return recipe;
  throw Error(ErrorCode::internal, "te_fp8.recipe", "'" + name + "' is none");
}

// Transformer Engine refuses layers of other sizes.
int64_t multiple_of(Recipe recipe) {
  return recipe == Recipe::mxfp8 ? 32 : 16;
}

struct Counts {
  int64_t layers = 0, mixtures = 0, others = 0;  // others: of sizes that do not fit

  bool takes(int64_t rows, int64_t columns, Recipe recipe, int64_t& counter) {
    const bool fits = rows % multiple_of(recipe) == 0 && columns % multiple_of(recipe) == 0;
    ++(fits ? counter : others);
    return fits;
  }
};

std::string counted(int64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

Transformed said(const Counts& found, const std::string& name, Recipe recipe, const std::string& where) {
  Transformed out;
  out.note =
      "products in fp8 (" + name + ") in " + counted(found.layers, "layer", "layers") +
      (found.mixtures > 0 ? " and " + counted(found.mixtures, "mixture of experts", "mixtures of experts")
                          : "");
  if (found.others > 0)
    out.warnings.push_back(where + ": " + counted(found.others, "layer has", "layers have") +
                           " sizes that are no multiples of " + std::to_string(multiple_of(recipe)) +
                           ": computed without fp8");
  if (recipe != Recipe::current || found.mixtures > 0)
    out.warnings.push_back(where + ": " + (recipe == Recipe::current ? "experts' " : "") +
                           "numbers are rounded to fp8 and multiplied in the dtype of the run: losses are "
                           "those of the recipe, the speed is that of the dtype");
  return out;
}

}  // namespace

ConfigSchema<TeConfig> te_schema() {
  return ConfigSchema<TeConfig>()
      .field("recipe", &TeConfig::recipe,
             "Scales: one for each tensor, for each block of 128 numbers, or for each 32 numbers.",
             OneOf{{"current", "block", "mxfp8"}})
      .field("linear", &TeConfig::linear, "Linear layers take part; model.backend.linear: te.")
      .field("experts", &TeConfig::experts, "Experts take part; model.backend.experts: te.")
      .field("emulate", &TeConfig::emulate,
             "With current, products of numbers that are rounded to fp8, in float32, on any device.");
}

Transformed TeFp8::apply(Units& units, const TransformRun& run) const {
  const Recipe recipe = recipe_of(config_.recipe);
  if (config_.emulate && recipe != Recipe::current)
    throw Error(ErrorCode::config, run.where + ".emulate", "emulate is for the recipe current",
                "leave it out: " + config_.recipe + " runs on any device");
  const auto products = te_products(recipe);
  const How how{config_.emulate, recipe == Recipe::current ? nullptr : products};
  const auto link =
      Linear::Instead::in_place(kLink, [how](std::span<Linear* const> layers, const at::Tensor& x,
                                             const Batch&) { return linears(layers, x, how); });
  Counts found;
  model::each<Linear>(units, [&](const std::string&, Linear& layer) {
    if (!config_.linear || layer.traits().role != Role::projection) return;
    if (found.takes(layer.weight.size(0), layer.weight.size(1), recipe, found.layers))
      layer.instead.add(link);
  });
  model::each<Experts>(units, [&](const std::string&, Experts& experts) {
    if (!config_.experts) return;
    if (found.takes(experts.shape().hidden, experts.shape().width, recipe, found.mixtures))
      experts.multiply_by(kLink, products);
  });
  if (found.layers + found.mixtures == 0)
    throw Error(ErrorCode::config, run.where,
                "the model has no linear layer and no experts for products in fp8: their sizes must be "
                "multiples of " +
                    std::to_string(multiple_of(recipe)),
                "leave te_fp8 out");
  return said(found, config_.recipe, recipe, run.where);
}

}  // namespace heddle::fp8
