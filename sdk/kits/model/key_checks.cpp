// Compares models by a digest of facts, signature, parameters, and the results of one forward and backward.
#include "key_checks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "../attempt.h"
#include "built_model.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"
#include "heddle/model/config_keys.h"
#include "lib/testing/whole_tensors.h"
#include "small_keys.h"

namespace heddle::kits {
namespace {

using Digest = std::map<std::string, std::string>;  // by the name of the property

std::string exact(double number) {
  std::ostringstream out;
  out << std::hexfloat << number;
  return out.str();
}

void add_slots(Digest& digest, const ModelSpec& spec) {
  for (const auto& unit : spec.make_units(at::kMeta))
    for (const ParameterSlot& slot : unit->parameters()) {
      std::ostringstream text;
      text << slot.tensor->sizes() << " init " << static_cast<int>(slot.init.kind) << " " << slot.init.std
           << (slot.trainable() ? " trains" : " is fixed");
      digest["the parameter '" + slot.name + "'"] = text.str();
    }
}

Digest digest_of(const ModelSpec& spec) {
  const ModelFacts facts = spec.facts();
  Digest digest = {{"facts().model_type", facts.model_type},
                   {"facts().vocabulary", std::to_string(facts.vocabulary)},
                   {"facts().max_positions", std::to_string(facts.max_positions)},
                   {"facts().dtype", facts.dtype}};
  for (const auto& [key, value] : spec.signature()) digest["signature()['" + key + "']"] = value;
  add_slots(digest, spec);
  AloneRendezvous alone;
  BuiltModel model({spec, alone});
  model.count_auxiliary_losses();
  Batch batch = rows_of(1, 0, 1, true, rows_for(spec)).front();
  batch.draws = at::arange(batch.tokens.numel(), batch.tokens.options()).view(batch.tokens.sizes());
  digest["the loss"] = exact(model.main_loss(batch));
  BuiltModel narrow({spec, alone}, at::kBFloat16);  // keys of dtypes affect it
  digest["the loss in bfloat16"] = exact(narrow.main_loss(batch));
  for (const auto& [name, gradient] : model.gradients(batch))
    digest["the gradient of '" + name + "'"] =
        gradient.defined() ? exact((gradient * gradient).sum().item<double>()) : "none";
  return digest;
}

// Returns the first difference, "facts().dtype is '' and not 'float32'", or "".
std::string difference(const Digest& got, const Digest& want) {
  for (const auto& [what, text] : want) {
    const auto here = got.find(what);
    if (here == got.end()) return what + " is missing";
    if (here->second != text) return what + " is " + here->second + " and not " + text;
  }
  for (const auto& [what, text] : got)
    if (want.count(what) == 0) return what + " should not be there";
  return "";
}

// Reads an exported model with the family of its model_type, as a run reads a checkpoint.
std::unique_ptr<ModelSpec> read_back(const Families& families, const ModelSpec& spec,
                                     const std::string& dtype) {
  const std::string text = spec.config_json(dtype);
  const auto attempt = [](const auto& read) {
    try {
      return read();
    } catch (const Error& error) {
      found("read() refuses what config_json() wrote: " + error.where() + ": " + error.message());
    }
  };
  const Node keys = attempt([&] { return config::read_text(text, "config.json"); });
  const std::string type = attempt([&] { return model::text_or(keys, "model_type", ""); });
  const OfferedModel* const family = families.of(type);
  if (family == nullptr)
    found("config_json() writes the model_type '" + type + "', and the plugin offers " + families.list() +
          ": an exported model could not be read");
  return attempt([&] { return read_model(*family, keys); });
}

// of: "with scale: 2, ", the beginning of the fault.
void check_read_back(const Families& families, const ModelSpec& spec, const Digest& first,
                     const std::string& of) {
  Digest want = first;
  want["facts().dtype"] = "float32";
  const auto again = read_back(families, spec, "float32");
  if (const std::string fault = difference(digest_of(*again), want); !fault.empty())
    found(of + "after config_json() and read(), " + fault);
}

// Compares models without their signatures: a key that only changes the signature has no effect.
bool same_model(const Digest& one, const Digest& other) {
  const auto without = [](Digest digest) {
    std::erase_if(digest, [](const auto& entry) { return entry.first.rfind("signature()", 0) == 0; });
    return digest;
  };
  return without(one) == without(other);
}

// Returns whether the help of a key says that the key has no effect. If the key has an effect, it is checked
// like other keys.
bool says_nothing_changes(const FieldInfo& field) {
  for (const char* words :
       {"assed over", "changes nothing", "o effect", "lder name", "nother name", "lias of", "gnored"})
    if (field.help.find(words) != field.help.npos) return true;
  return false;
}

enum class Effect { refused, none, some };

Effect effect_of(const Families& families, const OfferedModel& offered, const Node& keys,
                 const FieldInfo& field, const Digest& plain) {
  const Node now = value_of(field, keys);
  Effect effect = Effect::refused;
  for (const Node& other : other_values(field, now)) {
    std::unique_ptr<ModelSpec> spec;
    try {
      spec = read_model(offered, keys.with(field.key, other));
      if (spec->make_units(at::kMeta).size() > 12) continue;  // many layers: another value serves as well
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      continue;
    }
    const Digest digest = digest_of(*spec);
    if (same_model(digest, plain)) {
      effect = Effect::none;
      continue;
    }
    check_read_back(families, *spec, digest, "with " + field.key + ": " + other.written() + ", ");
    return Effect::some;
  }
  return effect;
}

// Returns the words in the range and in the help of a field: "full_attention", "or", "sliding_attention".
std::set<std::string> words_of(const FieldInfo& field) {
  std::set<std::string> out;
  std::string word;
  for (const char letter : field.range + " " + field.help + " ") {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_') {
      word += letter;
      continue;
    }
    if (!word.empty()) out.insert(std::exchange(word, ""));
  }
  return out;
}

// Returns settings beside which other keys may act: the opposite of a switch, twice a size, null for a size,
// and lists with one of the field's words for each of `layers` layers, most of which the family refuses.
std::vector<Node> turned_values(const FieldInfo& field, const Node& now, size_t layers) {
  std::vector<Node> out;
  if (field.type.starts_with("bool"))
    out.push_back(Node::boolean(!(now.kind() == Node::Kind::boolean && now.as_boolean())));
  else if (now.kind() == Node::Kind::integer)
    out.push_back(Node::integer(std::max<int64_t>(1, 2 * now.as_integer())));
  else if (field.type.starts_with("list"))
    for (const std::string& word : words_of(field))
      out.push_back(Node::list(std::vector<Node>(layers, Node::text(word))));
  if (field.type.ends_with("or null") && !now.is_null()) out.emplace_back();
  return out;
}

// The model with another value of one key.
struct Neighbour {
  std::string key;
  Node keys;
  bool refused = false;         // by the family
  std::optional<Digest> plain;  // once it is needed
};

// Returns the models with a turned value of one key.
std::vector<Neighbour> neighbours_of(const OfferedModel& offered, const Node& keys) {
  const size_t units = read_model(offered, keys)->make_units(at::kMeta).size();
  const size_t layers = units > 2 ? units - 2 : 1;  // between the embedding and the head
  std::vector<Neighbour> out;
  for (const FieldInfo& field : offered.fields)
    for (const Node& turned : turned_values(field, value_of(field, keys), layers))
      out.push_back({field.key, keys.with(field.key, turned), false, std::nullopt});
  return out;
}

// Tests a key together with another one, because some keys only act if another key is set: the coefficient of
// a loss that is off by default, the window of layers that do not exist by default, or the base of a rotation
// with one frequency in small heads.
Effect effect_beside_another(const Families& families, const OfferedModel& offered,
                             std::vector<Neighbour>& neighbours, const FieldInfo& field) {
  for (Neighbour& each : neighbours) {
    if (each.refused || each.key == field.key) continue;
    try {
      if (!each.plain) each.plain = digest_of(*read_model(offered, each.keys));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      each.refused = true;
      continue;
    }
    if (effect_of(families, offered, each.keys, field, *each.plain) == Effect::some) return Effect::some;
  }
  return Effect::none;
}

// Compares values; numbers are equal if their values are, however they are written.
bool same_values(const Node& got, const Node& want) {
  const auto is_number = [](const Node& node) {
    return node.kind() == Node::Kind::integer || node.kind() == Node::Kind::real;
  };
  if (is_number(got) && is_number(want)) return got.as_real() == want.as_real();
  if (got.kind() != want.kind()) return false;
  if (got.is_list())
    return std::equal(got.items().begin(), got.items().end(), want.items().begin(), want.items().end(),
                      same_values);
  if (!got.is_map()) return got == want;
  return got.entries().size() == want.entries().size() &&
         std::all_of(got.entries().begin(), got.entries().end(), [&](const Node::Entry& entry) {
           const Node* const found = want.find(entry.first);
           return found != nullptr && same_values(entry.second, *found);
         });
}

// Returns whether read() uses the default of the table for an absent key.
bool has_the_default(const OfferedModel& offered, const Node& keys, const FieldInfo& field) {
  if (keys.find(field.key) != nullptr || field.help.find("default is") != field.help.npos ||
      field.help.find("default depends") != field.help.npos)
    return true;
  const Node value = value_of(field, keys);
  const bool number = value.kind() == Node::Kind::integer || value.kind() == Node::Kind::real;
  if (!number && value.kind() != Node::Kind::boolean) return true;
  const auto written = [&](const Node& with) {
    return config::read_text(read_model(offered, with)->config_json("float32"), "config.json");
  };
  Node given;
  try {
    given = written(keys.with(field.key, value));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
    return true;  // the default depends on other keys
  }
  return same_values(given, written(keys));
}

// Checks the default of a key. Types that share a table may have different defaults.
void check_default(const OfferedModel& offered, const std::vector<Node>& keys, const FieldInfo& field) {
  if (keys.size() > 1 || has_the_default(offered, keys[0], field)) return;
  found("the table gives '" + field.key + "' the default " + field.default_value +
        ", but read() uses another value for an absent key");
}

}  // namespace

std::string refuses_unknown_keys(const OfferedModel& offered, const Node& keys) {
  const std::string key = "no_such_key_at_all";
  const Node more = keys.with(key, Node::integer(1));
  try {
    (void)offered.make()->read(more, UnknownKeys::passed_over);
  } catch (const Error& error) {
    found("a config.json with an unknown key is refused: " + error.message());
  }
  try {
    (void)offered.make()->read(more, UnknownKeys::refused);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::config) return "";
    throw;
  }
  found("a YAML with the key '" + key + "' is accepted");
}

std::string reads_what_it_writes(const Families& families, const OfferedModel& offered, const Node& keys) {
  const auto spec = read_model(offered, keys);
  check_read_back(families, *spec, digest_of(*spec), "");
  const std::string dtype = read_back(families, *spec, "bfloat16")->facts().dtype;
  if (dtype != "bfloat16") found("config_json('bfloat16') is read back with the dtype '" + dtype + "'");
  return "";
}

std::string acts_on_each_key(const Families& families, const OfferedModel& offered,
                             const std::vector<Node>& keys) {
  std::vector<Digest> plain;
  for (const Node& each : keys) plain.push_back(digest_of(*read_model(offered, each)));
  int acting = 0, fixed = 0;
  std::vector<std::string> exempt, untried;
  std::optional<std::vector<Neighbour>> neighbours;  // once they are needed
  Findings findings;
  for (const FieldInfo& field : offered.fields) {
    if (field.key == "model_type") continue;
    findings.attempt([&] {
      if (other_values(field, value_of(field, keys[0])).empty()) untried.push_back(field.key);
      const bool may_be_idle = says_nothing_changes(field);
      if (!may_be_idle) check_default(offered, keys, field);
      Effect effect = Effect::refused;
      for (size_t i = 0; i < keys.size() && effect != Effect::some; ++i)
        effect = std::max(effect, effect_of(families, offered, keys[i], field, plain[i]));
      if (may_be_idle && effect != Effect::some) return exempt.push_back(field.key);
      if (effect == Effect::none && keys.size() == 1) {
        if (!neighbours) neighbours = neighbours_of(offered, keys[0]);
        effect = effect_beside_another(families, offered, *neighbours, field);
      }
      const bool shared = keys.size() > 1;  // in a table of several types, some keys only act together
      if (effect == Effect::none && !shared)
        found(
            "the key '" + field.key +
            "' does not affect the model; if that is intended, say \"no effect\" or \"ignored\" in its help");
      ++(effect == Effect::some ? acting : fixed);
    });
  }
  findings.raise();
  if (acting == 0)
    throw NotRun{untried.empty() ? "no key affects the model by itself"
                                 : "the kit knows no other values for the types of " + text::join(untried)};
  return std::to_string(acting) + " keys affect the model, " + std::to_string(fixed) +
         " do not by themselves" +
         (exempt.empty() ? "" : ", and by their help these do not: " + text::join(exempt));
}

std::string makes_the_same_twice(const OfferedModel& offered, const Node& keys) {
  const auto spec = read_model(offered, keys);
  const auto seed = [] {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(7);
  };
  std::map<std::string, at::Tensor> first;
  seed();
  const Units one = spec->make_units(at::TensorOptions(at::kCPU).dtype(at::kFloat));
  seed();
  const Units two = spec->make_units(at::TensorOptions(at::kCPU).dtype(at::kFloat));
  for (const auto& unit : one)
    for (const ParameterSlot& slot : unit->parameters()) first.emplace(slot.name, *slot.tensor);
  const auto differs = [](const std::string& name) {
    found("'" + name + "' differs between two models that were drawn with the same seed");
  };
  std::set<std::string> seen;
  for (const auto& unit : two)
    for (const ParameterSlot& slot : unit->parameters()) {
      const auto same = first.find(slot.name);
      if (same == first.end() || !at::equal(same->second, *slot.tensor)) differs(slot.name);
      seen.insert(slot.name);
      if (slot.tensor->numel() > 0 && slot.tensor->is_alias_of(same->second))
        found("'" + slot.name + "' is the same tensor in two models");
      if (slot.tensor->is_cpu() && slot.tensor->ne(*slot.tensor).any().item<bool>())
        found("'" + slot.name + "' contains NaN");
    }
  for (const auto& [name, tensor] : first)
    if (seen.count(name) == 0) differs(name);
  return std::to_string(first.size()) + " parameters";
}

}  // namespace heddle::kits
