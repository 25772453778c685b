// From checked words to plugins that agree, and the lines by which ranks find out that they differ.
#include "heddle/engine/engine.h"

namespace heddle::engine {

Plan choose(const Setup& setup, PluginRegistry& plugins) {
  if (!setup.not_built.empty()) {
    std::string all;
    for (const std::string& field : setup.not_built) all += (all.empty() ? "" : "; ") + field;
    throw Error(ErrorCode::not_built, "distributed", all,
                "leave these at their defaults to train; `heddle check` accepts them");
  }
  const OfferedStrategy* strategy = plugins.strategy(setup.strategy);
  if (strategy == nullptr)
    throw Error(ErrorCode::plugin_missing, "distributed.strategy",
                "no plugin offers '" + setup.strategy + "'");
  if (!strategy->not_built.empty())
    throw Error(ErrorCode::not_built, "distributed.strategy", setup.strategy + ": " + strategy->not_built,
                "train with one of the strategies that are built; `heddle plugins list` names them");
  Plan plan;
  plan.strategy = strategy->make(setup.strategy_config);
  return plan;
}

std::string fingerprint(const Setup& setup, const PluginRegistry& plugins, const std::string& more) {
  std::string lines = "setup: " + to_json(setup) +
                      "\ntimeout_minutes: " + std::to_string(setup.timeout_minutes) +
                      "\nbackend: " + setup.backend + "\n" + plugins.fingerprint();
  if (!more.empty()) lines += "\n" + more;
  return lines;
}

}  // namespace heddle::engine
