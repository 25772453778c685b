// The sections of a recipe that plugins would read, where there are none.
#pragma once

#include <utility>

#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// Throws as preflight does.
inline Recipe with_plugin_sections(Recipe recipe) {
  PluginRegistry none({});
  recipe = heddle::with_plugin_sections(std::move(recipe), none);
  recipe.errors.raise();
  return recipe;
}

}  // namespace heddle::tests
