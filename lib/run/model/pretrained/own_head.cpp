// Finds a tied head: its names become names of the embedding only when the model ties them.
#include "lib/run/model/pretrained/own_head.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/engine/engine.h"
#include "heddle/model/unit.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/run/model/adapter/adapter.h"

namespace heddle {
namespace {

constexpr const char *kTie = "tie_word_embeddings", *kTextKeys = "text_config";
constexpr int64_t kMostElements = int64_t{1} << 22;  // elements compared at a time

bool ties_head(const ModelSpec& model) {
  const auto keys = checkpoint::hf_json_if_valid(model.config_json("float32"));
  if (!keys || !keys->is_object()) return false;
  const auto ties = [](const nlohmann::ordered_json& map) {
    const auto found = map.find(kTie);
    return found != map.end() && *found == true;
  };
  const auto text = keys->find(kTextKeys);
  return ties(*keys) || (text != keys->end() && text->is_object() && ties(*text));
}

bool have_equal_values(const checkpoint::BaseWeights& weights, const std::string& a, const std::string& b) {
  const std::vector<int64_t> shape = weights.at(a).shape;
  if (shape != weights.at(b).shape) return false;
  if (shape.empty()) return true;
  int64_t columns = 1;
  for (size_t d = 1; d < shape.size(); ++d) columns *= shape[d];
  const int64_t rows = std::max<int64_t>(1, kMostElements / std::max<int64_t>(1, columns));
  std::vector<int64_t> offset(shape.size(), 0), size = shape;
  for (int64_t first = 0; first < shape[0]; first += rows) {
    offset[0] = first;
    size[0] = std::min(rows, shape[0] - first);
    const at::Tensor x = at::empty(size, at::kFloat), y = at::empty(size, at::kFloat);
    weights.read(a, offset, x);
    weights.read(b, offset, y);
    if (!at::equal(x, y)) return false;
  }
  return true;
}

// Returns the first of the names that the files contain; empty: none.
std::string first_in(const checkpoint::BaseWeights& weights, const std::vector<std::string>& names) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const std::string& name) { return weights.has(name); });
  return found == names.end() ? "" : *found;
}

std::set<std::string> parameters_of(const Units& units) {
  std::set<std::string> out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) out.insert(slot.name);
  return out;
}

// Collects the file names of the embedding and of the head: a head is an alternative name of the embedding
// only if the two are tied.
void add_names(TiedHead& out, const ModelSpec& tied, const Units& units) {
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      const StoredParts parts = tied.stored(slot.name, slot.tensor->sizes());
      const std::string tensor = parts.empty() ? slot.name : parts.front().tensor;
      std::vector<std::string> heads = tied.other_names(tensor), own = out.untied->other_names(tensor);
      own.insert(own.begin(), tensor);
      std::erase_if(heads, [&](const std::string& name) {
        return std::find(own.begin(), own.end(), name) != own.end();
      });
      if (heads.empty()) continue;
      out.embedding = slot.name;
      out.heads = std::move(heads);
      out.embeddings = std::move(own);
      return;
    }
}

}  // namespace

TiedHead find_tied_head(const Node& keys, const ModelSpec& tied, PluginRegistry& plugins) {
  TiedHead out;
  if (!ties_head(tied)) return out;
  try {
    out.untied = engine::read_model(untied_keys(keys), plugins, UnknownKeys::passed_over);
  } catch (const Error&) {
    return {};  // the family has no separate head
  }
  const Units units = tied.make_units(at::TensorOptions(at::kMeta));
  const std::set<std::string> before = parameters_of(units);
  for (const std::string& name : parameters_of(out.untied->make_units(at::TensorOptions(at::kMeta))))
    if (!before.contains(name)) out.head = name;
  add_names(out, tied, units);
  return out.head.empty() || out.embedding.empty() ? TiedHead{} : out;
}

Node untied_keys(const Node& keys) {
  const Node no = Node::boolean(false);
  const Node* text = keys.find(kTextKeys);
  const Node out = keys.with(kTie, no);
  return text == nullptr || !text->is_map() ? out : out.with(kTextKeys, text->with(kTie, no));
}

HeadInFiles head_in_files(const TiedHead& tied, const checkpoint::BaseWeights& weights) {
  HeadInFiles out{first_in(weights, tied.heads), first_in(weights, tied.embeddings)};
  if (out.head.empty() || out.embedding.empty()) return {};
  out.differs = !have_equal_values(weights, out.head, out.embedding);
  return out;
}

bool adapts_head(const TiedHead& tied, const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kAdapterWeights;
  std::error_code ignored;
  if (tied.head.empty() || !std::filesystem::exists(file, ignored)) return false;
  const SafetensorsFile weights(file);
  return std::any_of(tied.heads.begin(), tied.heads.end(), [&](const std::string& head) {
    const std::string module = head.substr(0, head.rfind('.'));
    return weights.tensors().contains("base_model.model." + module + ".lora_A.weight");
  });
}

ParameterSource with_head_of_embedding(ParameterSource base, const TiedHead& tied) {
  return [base = std::move(base), head = tied.head, embedding = tied.embedding](const Shard& shard) {
    if (shard.name != head) return base(shard);
    Shard of_embedding = shard;
    of_embedding.name = embedding;
    return base(of_embedding);
  };
}

}  // namespace heddle
