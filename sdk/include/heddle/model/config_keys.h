// Reads the keys of a Hugging Face config.json for model families.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/model/family.h"

namespace heddle::model {

// Throws Error{config} at the node.
[[noreturn]] HEDDLE_API void refuse(const Node& node, const std::string& message,
                                    const std::string& hint = "");

// Returns the value of a key, or null if it is absent or null.
HEDDLE_API const Node* given(const Node& keys, std::string_view key);
// Return the value of a key, or `otherwise` if it is absent or null.
HEDDLE_API int64_t integer_or(const Node& keys, std::string_view key, int64_t otherwise);
HEDDLE_API double real_or(const Node& keys, std::string_view key, double otherwise);
HEDDLE_API bool boolean_or(const Node& keys, std::string_view key, bool otherwise);
HEDDLE_API std::string text_or(const Node& keys, std::string_view key, const std::string& otherwise);

// Limits beyond any real model. Products of two such sizes, in bytes, fit into 64 bits.
inline constexpr int64_t kLargestSize = int64_t{1} << 28, kMostLayers = 100'000;
// Returns a size in [1, most], or `otherwise`. Throws Error{config} out of this range.
HEDDLE_API int64_t size_or(const Node& keys, std::string_view key, int64_t otherwise,
                           int64_t most = kLargestSize);

// Throws Error{config} for keys that are not in the family's table, except keys without effect in any model
// (architectures, use_cache, ...). A YAML may have no unknown key. In a config.json, only keys similar to a
// key of the table are refused.
HEDDLE_API void check_keys(const Node& keys, std::span<const FieldInfo> table, UnknownKeys unknown);

// Returns the text of a config.json with these values. dtype may be empty.
HEDDLE_API std::string write_config_json(const Node& values, const std::string& model_type,
                                         const std::string& architecture, const std::string& dtype);

// Returns the entries whose keys are in the table, without nulls that stand for an absent key.
HEDDLE_API Node keys_of_table(const Node& keys, std::span<const FieldInfo> table);

// Keys that are read together, and their entries in a config.json.
template <class Config>
struct KeyGroup {
  std::vector<FieldInfo> table;
  std::function<void(const Node& keys, Config& config)> read;
  std::function<std::vector<Node::Entry>(const Config& config)> write;
};

// A key of which only this value is supported. With any other value transformers computes differently.
using OnlyValue = std::pair<std::string, Node>;

// Throws Error{config} at the first key that has another value. null counts as absent.
HEDDLE_API void check_only(const Node& keys, std::span<const OnlyValue> only);

// Returns the signature of a model: all entries except those that affect neither a tensor nor a result of a
// step (the longest sequence, initial values, dtypes, the padding token).
HEDDLE_API std::map<std::string, std::string> signature_of(const Node& values, const std::string& model_type);

// The keys of a model family, declared once. They give the table for Offer::model, the reader, the signature
// and the exported config.json. Each key is bound to a member of Config, whose initializer is the default.
template <class Config>
class ModelKeys {
 public:
  // Adds a key like ConfigSchema::field: a range, words or a check may follow the help. The member may belong
  // to a base of Config.
  template <class T, class Holder, class... Options>
  ModelKeys& field(std::string key, T Holder::*slot, std::string help, Options... options) {
    schema_.field(std::move(key), static_cast<T Config::*>(slot), std::move(help), std::move(options)...);
    return *this;
  }
  // Adds a check of the whole struct, std::string(const Config&). A non-empty result becomes an
  // Error{config}.
  template <class Complaint>
  ModelKeys& rule(Complaint complaint) {
    schema_.rule(std::move(complaint));
    return *this;
  }
  // Adds a function void(Config&) that sets dependent fields before the rules.
  template <class Fill>
  ModelKeys& then(Fill fill) {
    schema_.then(std::move(fill));
    return *this;
  }
  // Adds keys that are read together, after the fields and the rules.
  ModelKeys& group(KeyGroup<Config> group) {
    groups_.push_back(std::move(group));
    return *this;
  }
  // Adds a key of which only this value is supported. It is written unless it is null.
  ModelKeys& only(std::string key, Node value, std::string help) {
    only_table_.push_back({key, "any", value.written(), value.written(), std::move(help), ""});
    only_.emplace_back(std::move(key), std::move(value));
    return *this;
  }
  // Adds a key of transformers that has no effect here. It is ignored and not written.
  ModelKeys& unused(std::string key, std::string help) {
    unused_.push_back({std::move(key), "any", "", "", std::move(help), ""});
    return *this;
  }

  std::vector<FieldInfo> table() const {
    std::vector<FieldInfo> fields = schema_.fields();
    for (const KeyGroup<Config>& group : groups_)
      fields.insert(fields.end(), group.table.begin(), group.table.end());
    for (const auto* list : {&only_table_, &unused_}) fields.insert(fields.end(), list->begin(), list->end());
    return fields;
  }
  // Reads the keys. Throws Error{config} at the key, or an ErrorList for several errors.
  Config read(const Node& keys, UnknownKeys unknown) const {
    SectionErrors found;
    found.errors.attempt([&] { check_keys(keys, table(), unknown); });
    found.errors.attempt([&] { check_only(keys, only_); });
    Config config = schema_.read(keys_of_table(keys, schema_.fields()), found);
    found.errors.raise();
    for (const KeyGroup<Config>& group : groups_) found.errors.attempt([&] { group.read(keys, config); });
    found.errors.raise();
    return config;
  }
  // Returns the config.json for ModelSpec::config_json: every field, and the keys that transformers needs in
  // addition.
  std::string config_json(const Config& config, const std::string& model_type,
                          const std::string& architecture, const std::string& dtype) const {
    return write_config_json(written(config), model_type, architecture, dtype);
  }
  // Returns the signature for ModelSpec::signature.
  std::map<std::string, std::string> signature(const Config& config, const std::string& model_type) const {
    return signature_of(written(config), model_type);
  }

 private:
  Node written(const Config& config) const {
    std::vector<Node::Entry> entries = schema_.write(config).entries();
    for (const KeyGroup<Config>& group : groups_)
      for (Node::Entry& entry : group.write(config)) entries.push_back(std::move(entry));
    for (const OnlyValue& entry : only_)
      if (!entry.second.is_null()) entries.push_back(entry);
    return Node::map(std::move(entries));
  }

  ConfigSchema<Config> schema_;
  std::vector<KeyGroup<Config>> groups_;
  std::vector<OnlyValue> only_;
  std::vector<FieldInfo> only_table_, unused_;
};

}  // namespace heddle::model
