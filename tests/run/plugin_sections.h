// Plugin sections of a recipe when no plugin is loaded.
#pragma once

#include <utility>

#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// Throws what preflight throws.
inline Recipe with_plugin_sections(Recipe recipe) {
  PluginRegistry none({});
  recipe = heddle::with_plugin_sections(std::move(recipe), none);
  recipe.errors.raise();
  return recipe;
}

}  // namespace heddle::tests
