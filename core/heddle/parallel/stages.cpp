// The places of this rank's stages, and the scope in which their parameters are whole.
#include "heddle/parallel/stages.h"

#include <set>
#include <sstream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/parallel/unsharded.h"

namespace heddle {

Stages::Stages(Pipeline pipeline, int rank) : pipeline_(std::move(pipeline)), rank_(rank), indices_() {
  for (int stage = 0; stage < pipeline_.stages(); ++stage)
    if (pipeline_.rank_of_stage[stage] == rank_) indices_.push_back(stage);
}

std::vector<Shard*> Stages::shards() {
  std::vector<Shard*> all;
  for (const auto& stage : stages_)
    for (Shard& shard : stage->owned()) all.push_back(&shard);
  return all;
}

namespace {

// A sampler would compute with parts as if they were the parameters.
void check_whole(const Stages::Whole& expected, const std::vector<WholeParameter>& given) {
  const auto refuse = [&expected](const std::string& fault) {
    throw Error(
        ErrorCode::plugin_failed, expected.where,
        "the strategy '" + expected.strategy + "' breaks a rule of WholeParameters::hold_whole(): " + fault,
        "implement heddle::WholeParameters and gather there what the data-parallel ranks hold; without it "
        "the "
        "owned shards are taken as they are");
  };
  std::set<std::string> seen;
  for (const WholeParameter& parameter : given) {
    const auto found = expected.sizes.find(parameter.name);
    if (found == expected.sizes.end()) refuse("'" + parameter.name + "' is no parameter of its units");
    if (parameter.tensor.sizes() != at::IntArrayRef(found->second)) {
      std::ostringstream sizes;
      sizes << parameter.tensor.sizes() << " of '" << parameter.name << "', which is "
            << at::IntArrayRef(found->second);
      refuse("it gives a part " + sizes.str());
    }
    if (!seen.insert(parameter.name).second) refuse("it gives '" + parameter.name + "' twice");
  }
  for (const auto& [name, sizes] : expected.sizes)
    if (seen.count(name) == 0) refuse("it does not give '" + name + "'");
}

}  // namespace

Unsharded::Unsharded(Stages& stages) : stages_(stages) {
  size_t held = 0;
  try {
    for (; held < stages_.size(); ++held)
      for (WholeParameter& parameter : stages_.interfaces(held).hold_whole())
        parameters_.push_back(std::move(parameter));
    if (stages_.whole()) check_whole(*stages_.whole(), parameters_);
  } catch (...) {
    while (held-- > 0) stages_.interfaces(held).release_whole();
    throw;
  }
}

Unsharded::~Unsharded() {
  for (size_t held = 0; held < stages_.size(); ++held) stages_.interfaces(held).release_whole();
}

}  // namespace heddle
