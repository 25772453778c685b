// The keys of a recipe's `distributed:` that name code in AutoModel.
#include <algorithm>

#include "core/engine/sections.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/schema.h"

namespace heddle::engine {
namespace {

// "MegatronFSDPConfig" and "megatron-fsdp" are megatronfsdp.
std::string plain(std::string_view name) {
  std::string out = text::lower(name);
  std::erase_if(out, [](char c) { return c == '_' || c == '-'; });
  return out;
}

// The strategy that a `_target_` names; "" for none.
std::string strategy_of(const std::string& target, PluginRegistry& plugins) {
  const std::string word = plain(target.substr(target.find_last_of(".:") + 1));
  for (const std::string& name : plugins.names("strategy"))
    if (word == plain(name) + "config" || word == plain(name) + "manager") return name;
  return "";
}

}  // namespace

void check_hydra_keys(const Node& section, const std::string& chosen, PluginRegistry& plugins,
                      std::vector<std::string>& warnings) {
  if (const Node* node = section.find("_recursive_"); node != nullptr && !node->is_null()) node->as_boolean();
  if (const Node* node = section.find("_convert_"); node != nullptr && !node->is_null())
    read_word(*node, {"none", "partial", "object", "all"});
  const Node* target = section.find("_target_");
  if (target == nullptr || target->is_null()) return;
  const std::string named = strategy_of(target->as_text(), plugins);
  if (named.empty())
    throw Error(ErrorCode::config, target->where(),
                "unknown component " + target->written() +
                    "; here it names a strategy and Config or Manager, and the strategies are " +
                    text::join(plugins.names("strategy")),
                "remove _target_: the key strategy selects the strategy");
  if (const OfferedStrategy* offered = plugins.strategy(named); offered != nullptr && offered->name != chosen)
    warnings.push_back("distributed._target_ names " + offered->name +
                       ", but the key strategy selects the strategy, which is " + chosen +
                       "; set strategy: " + offered->name + " to use it");
}

}  // namespace heddle::engine
