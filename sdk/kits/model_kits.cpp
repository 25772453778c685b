// A family's models: names, files, config.json.
#include "model_kits.h"

#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "gathered.h"
#include "heddle/config/node.h"
#include "lib/checkpoint/huggingface/hf_layout.h"

namespace heddle::kits {
namespace {

std::unique_ptr<ModelSpec> read_model(const OfferedModel& offered, const Node& keys,
                                      const std::string& model_type) {
  try {
    return offered.make()->read(keys.with("model_type", Node::text(model_type)), UnknownKeys::passed_over);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::config) throw;
    throw NotRun{"its default keys are refused, and --fields may give others: " + error.message()};
  }
}

std::string has_units(const ModelSpec& spec, const std::string& model_type) {
  const ModelFacts facts = spec.facts();
  if (facts.model_type != model_type)
    found("facts() says model_type '" + facts.model_type + "' of '" + model_type + "'");
  if (facts.vocabulary < 1 || facts.max_positions < 1) found("facts() has no vocabulary or no positions");
  if (spec.signature().empty()) found("signature() is empty: every model would fit every checkpoint");
  std::map<std::string, std::vector<int64_t>> parameters;
  int64_t count = 0;
  for (const auto& unit : spec.make_units(at::kMeta))
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!slot.tensor->is_meta()) found("'" + slot.name + "' is not on meta, where options said so");
      const auto [at, is_new] = parameters.emplace(slot.name, slot.tensor->sizes().vec());
      if (!is_new && at->second != slot.tensor->sizes())
        found("'" + slot.name + "' is tied to a tensor of another shape");
      if (is_new) count += slot.tensor->numel();
    }
  return std::to_string(parameters.size()) + " parameters of " + std::to_string(count) + " numbers";
}

std::string fills_files(const ModelSpec& spec) {
  const checkpoint::HfLayout layout = checkpoint::layout_of(spec);
  checkpoint::check_whole(layout);
  return layout.empty() ? "parameters are the tensors of their names"
                        : std::to_string(layout.size()) + " tensors are made of parameters";
}

std::string counts_operations(const ModelSpec& spec) {
  const double one = spec.flops_per_token(1), more = spec.flops_per_token(2048);
  if (!std::isfinite(one) || one <= 0) found("flops_per_token(1) is " + std::to_string(one));
  if (!(more >= one)) found("a longer sequence takes fewer operations a token");
  return std::to_string(one) + " and " + std::to_string(more);
}

}  // namespace

void run_model_kits(const OfferedModel& offered, const Node& keys, Attempts& attempt) {
  std::vector<std::string> types = {offered.name};
  types.insert(types.end(), offered.aliases.begin(), offered.aliases.end());
  for (const std::string& type : types) {
    const std::string thing = "model '" + type + "': ";
    attempt(thing + "make_units(): on meta, each name one shape",
            [&] { return has_units(*read_model(offered, keys, type), type); });
    attempt(thing + "stored(): every element of a parameter and of a tensor once",
            [&] { return fills_files(*read_model(offered, keys, type)); });
    attempt(thing + "flops_per_token(): grows with the sequence",
            [&] { return counts_operations(*read_model(offered, keys, type)); });
  }
}

}  // namespace heddle::kits
