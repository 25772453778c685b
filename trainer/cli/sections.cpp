// The sections of a recipe, by name.
#include "trainer/cli/sections.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::cli {

void check_sections(const Node& configuration) {
  static const std::vector<std::string> known = {"recipe",
                                                 "seed",
                                                 "step_scheduler",
                                                 "dist_env",
                                                 "model",
                                                 "dataset",
                                                 "validation_dataset",
                                                 "dataloader",
                                                 "optimizer",
                                                 "lr_scheduler",
                                                 "clip_grad_norm",
                                                 "distributed",
                                                 "checkpoint",
                                                 "loss_fn",
                                                 "plugins"};
  for (const auto& [key, value] : configuration.entries()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = text::nearest(key, known);
    throw Error(ErrorCode::config, value.where(), "unknown key '" + key + "'",
                near.empty() ? "the sections are " + text::join(known) : "did you mean '" + near + "'?");
  }
}

PluginRegistry open_plugins(const Node& configuration, const Log& log) {
  return PluginRegistry(plugin::search_path({}), log);
}

}  // namespace heddle::cli
