// Transform te_fp8: selects the layers whose products te_products.cpp computes.
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
  throw Error(ErrorCode::internal, "te_fp8.recipe", "'" + name + "' is not a recipe");
}

// Returns the multiple of which layer sizes must be. Transformer Engine refuses other sizes.
int64_t multiple_of(Recipe recipe) {
  return recipe == Recipe::mxfp8 ? 32 : 16;
}

struct Counts {
  int64_t layers = 0, mixtures = 0, others = 0;  // others: layers whose sizes do not fit

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
                           " sizes that are not multiples of " + std::to_string(multiple_of(recipe)) +
                           " and will not use fp8");
  if (recipe != Recipe::current || found.mixtures > 0)
    out.warnings.push_back(where + ": " + (recipe == Recipe::current ? "experts' " : "") +
                           "operands are rounded to fp8, but multiplied in the dtype of the run: losses "
                           "match the recipe, speed matches the dtype");
  return out;
}

}  // namespace

ConfigSchema<TeConfig> te_schema() {
  return ConfigSchema<TeConfig>()
      .field("recipe", &TeConfig::recipe,
             "Granularity of the scales: one per tensor (current), per block of 128 elements (block) or per "
             "32 elements (mxfp8).",
             OneOf{{"current", "block", "mxfp8"}})
      .field("linear", &TeConfig::linear, "Convert linear layers. Set by model.backend.linear: te.")
      .field("experts", &TeConfig::experts, "Convert experts. Set by model.backend.experts: te.")
      .field("emulate", &TeConfig::emulate,
             "For the recipe current: round operands to fp8 and multiply them in float32, on any device.");
}

Transformed TeFp8::apply(Units& units, const TransformRun& run) const {
  const Recipe recipe = recipe_of(config_.recipe);
  if (config_.emulate && recipe != Recipe::current)
    throw Error(ErrorCode::config, run.where + ".emulate", "emulate needs recipe: current",
                "remove emulate: " + config_.recipe + " runs on any device");
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
                "the model has no linear layer and no experts that qualify for products in fp8: sizes must "
                "be multiples of " +
                    std::to_string(multiple_of(recipe)),
                "remove te_fp8");
  return said(found, config_.recipe, recipe, run.where);
}

}  // namespace heddle::fp8
