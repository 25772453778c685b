// Checks of head counts, rank counts and foreign units.
#include "checks.h"

#include <string>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/sequence_core.h"
#include "mixers.h"

namespace heddle::context {
namespace {

void check_dealing(const Method& method, int cp) {
  const int64_t ulysses_size = method.ulysses_ranks(cp);
  if (cp % ulysses_size == 0) return;
  throw Error(ErrorCode::config, "distributed.context.ulysses_size",
              "ulysses_size (" + std::to_string(ulysses_size) + (method.ulysses_size ? "" : ", the default") +
                  ") must divide cp_size (" + std::to_string(cp) + ")",
              "set ulysses_size to a divisor of cp_size");
}

void check_mixer(const SequenceCounts& counts, int cp, int tp) {
  const int parts = counts.split && counts.groups % tp == 0 ? tp : 1;
  deal_heads({counts.groups / parts, counts.heads / counts.groups}, cp);
}

}  // namespace

void check_heads(int64_t heads, const Method& method, int cp) {
  const int64_t ulysses_size = method.ulysses_ranks(cp);
  if (heads % ulysses_size == 0) return;
  const std::string key = method.method == "ulysses" ? "cp_size" : "ulysses_size";
  throw Error(ErrorCode::config, "distributed.context.method",
              "method " + method.method + " needs numbers of query heads and key-value heads that " + key +
                  " divides: a rank has " + std::to_string(heads) + ", " + key + " is " +
                  std::to_string(ulysses_size),
              "set method: allgather or ring, or a " + key + " that divides the heads");
}

void check_units(Units& units, const Method& method, int cp, int tp) {
  check_dealing(method, cp);
  bool chooses = false;  // an indexer selects keys, and the attention over them splits heads
  model::each<RowGather>(units, [&](const std::string&, RowGather&) { chooses = true; });
  for (const auto& unit : units) {
    if (unit->module() == nullptr)
      throw Error(ErrorCode::config, "distributed.cp_size",
                  "the unit '" + std::string(unit->name()) +
                      "' is foreign: context parallelism cannot see its attention",
                  "set cp_size: 1, or build the unit from heddle's modules");
    unit->module()->visit(std::string(unit->name()), [&](const std::string& path, Module& module) {
      if (const auto* mixer = model::as<SequenceCore>(module); mixer != nullptr)
        return check_mixer(mixer->counts(), cp, tp);
      if (model::as<RowGather>(module) != nullptr) return;
      const auto* core = model::as<AttentionCore>(module);
      if (core == nullptr)
        return refuse_mixed_tokens(module, path, "cp", "distributed.cp_size", "set cp_size: 1");
      if (chooses && core->counts().keys > 0)
        deal_heads({core->counts().keys, core->counts().queries / core->counts().keys}, cp);
      for (const int64_t heads : {core->counts().queries, core->counts().keys})
        if (heads % tp == 0)
          check_heads(heads / tp, method, cp);  // tensor parallelism refuses the other case
    });
  }
}

}  // namespace heddle::context
