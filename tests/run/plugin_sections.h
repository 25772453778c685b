// The sections of a recipe that plugins would read, where there are none.
#pragma once

#include <utility>

#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// Throws as preflight does.
inline Recipe with_plugin_sections(Recipe recipe) {
  PluginRegistry none({});
  Errors errors;
  read_plugin_sections(recipe, none, errors);
  errors.raise();
  return recipe;
}

}  // namespace heddle::tests
