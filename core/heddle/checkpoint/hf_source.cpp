// Parameters filled from Hugging Face weights.
#include "heddle/checkpoint/hf_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/box.h"

namespace heddle::checkpoint {
namespace {

[[noreturn]] void refuse_missing(const std::string& directory, const HfWeights& weights,
                                 const std::string& name) {
  const std::vector<std::string> names = weights.names();
  const std::string near = text::nearest(name, names);
  throw Error(ErrorCode::input, directory, "the weights hold no tensor " + text::quoted(name),
              near.empty() ? "the config.json and the weights are of different models"
                           : "the nearest name is " + text::quoted(near) +
                                 "; do config.json and the weights belong together?");
}

}  // namespace

ParameterSource hf_source(const std::filesystem::path& directory, std::shared_ptr<const HfWeights> weights) {
  return [where = directory.string(), weights = std::move(weights)](const Shard& shard) {
    std::string name = shard.name;
    if (name == kEmbedding && !weights->has(name) && weights->has(kHead)) name = kHead;
    if (!weights->has(name)) refuse_missing(where, *weights, name);
    const StoredTensor& stored = weights->at(name);
    if (stored.shape != shard.shape)
      throw Error(ErrorCode::input, where,
                  "tensor " + text::quoted(name) + " has the shape " + written(stored.shape) +
                      ", the model needs " + written(shard.shape),
                  "do config.json and the weights belong together?");
    if (!shard.tensor.is_meta()) weights->read(name, shard.offset, shard.tensor);
    return true;
  };
}

std::vector<std::string> unused(std::span<const std::string> names, const Units& units) {
  std::set<std::string> wanted;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) wanted.insert(slot.name);
  if (!wanted.count(kHead)) wanted.insert(kHead);  // a tied head that was saved all the same
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (!wanted.count(name)) out.push_back(name);
  return out;
}

}  // namespace heddle::checkpoint
