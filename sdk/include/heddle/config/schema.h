// Binds the keys of one YAML section to the fields of one struct; the struct's initialisers are the defaults.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"

namespace heddle {

// Both ends are allowed values.
template <class T>
struct Range {
  T low, high;
};

template <class T>
Range<T> at_least(T low) {
  return {low, std::numeric_limits<T>::max()};
}

// One of these words; case does not matter, and a hyphen is read as an underscore.
struct OneOf {
  std::vector<std::string> words;
};

// A check of the written value before it is read; it throws Error{config}. `range` is for the table.
struct Check {
  std::string range;
  std::function<void(const Node&)> run;
};

// A dtype by its name: "float32", "bfloat16", ...; empty means null.
struct DTypeWord {
  std::string word;
  bool operator==(const DTypeWord&) const = default;
};

// What `heddle plugins inspect` prints of one field.
struct FieldInfo {
  std::string key, type, default_value, range, help;
  std::string later;  // not empty: accepted and checked, but only the default is built; the reason
};

// How a C++ type is read from a Node and written back. Specialise it for a type of your own:
//   static std::string type_name();
//   static T read(const Node&);            // throws Error{config} at the node
//   static Node write(const T&);
template <class T>
struct FieldType;

// The part of a schema that is independent of the struct: keys, the table of fields, errors about keys.
class HEDDLE_API SchemaTable {
 public:
  const std::vector<FieldInfo>& fields() const { return fields_; }

 protected:
  void add(FieldInfo info);
  FieldInfo& of(const std::string& key);       // throws Error{internal} for a key that no field has
  void check_keys(const Node& section) const;  // throws for unknown keys and for a section that is not a map
  std::vector<FieldInfo> fields_;
};

HEDDLE_API Error range_error(const Node& value, const std::string& range);
// The matching word of the list. Throws Error{config} with the nearest one.
HEDDLE_API std::string word_of(const Node& value, const std::vector<std::string>& words);

namespace config {

// The map without its `_target_`, whose last component must be `name` if it is given. Throws Error{config}.
HEDDLE_API Node without_target(const Node& map, const std::string& name);

}  // namespace config

template <class Struct>
class ConfigSchema : public SchemaTable {
 public:
  // The key reads into the slot; absent keys keep the struct's initialiser.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help) {
    return bind<T>(std::move(key), slot, std::move(help), "",
                   [](const Node& at) { return FieldType<T>::read(at); });
  }

  // The same for a word, or a word or null, out of a list.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, OneOf allowed) {
    return bind<T>(std::move(key), slot, std::move(help), text::join(allowed.words),
                   [allowed](const Node& at) {
                     T value = FieldType<T>::read(at);
                     if constexpr (requires { value.has_value(); }) {
                       if (value) value = word_of(at, allowed.words);
                     } else {
                       value = word_of(at, allowed.words);
                     }
                     return value;
                   });
  }

  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Check check) {
    return bind<T>(std::move(key), slot, std::move(help), check.range, [check](const Node& at) {
      check.run(at);
      return FieldType<T>::read(at);
    });
  }

  // The same with a range for the value (of an optional or a list: of what it holds).
  template <class T, class Bound>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Range<Bound> range) {
    const std::string text = range_text(range);
    return bind<T>(std::move(key), slot, std::move(help), text, [range, text](const Node& at) {
      T value = FieldType<T>::read(at);
      if constexpr (requires { value.has_value(); }) {
        if (value && (*value < range.low || *value > range.high)) throw range_error(at, text);
      } else {
        if (value < range.low || value > range.high) throw range_error(at, text);
      }
      return value;
    });
  }

  // A check over the whole struct; a non-empty message becomes an Error{config} at the section.
  ConfigSchema& rule(std::function<std::string(const Struct&)> complaint) {
    rules_.push_back(std::move(complaint));
    return *this;
  }

  // Sets fields that depend on others, or defaults for null: runs after all fields are read, before the
  // rules.
  ConfigSchema& then(std::function<void(Struct&)> fill) {
    fills_.push_back(std::move(fill));
    return *this;
  }

  // The field is read and checked, but a run accepts only its default until the feature is built.
  ConfigSchema& later(const std::string& key, std::string why) {
    of(key).later = std::move(why);
    return *this;
  }

  // The same if more than the default is built: `built` tells whether this value is.
  ConfigSchema& later(const std::string& key, std::string why, std::function<bool(const Struct&)> built) {
    built_[key] = std::move(built);
    return later(key, std::move(why));
  }

  // Throws Error{config} with file, line, key and the nearest key.
  Struct read(const Node& section) const {
    check_keys(section);
    Struct out{};
    for (const Binding& binding : bindings_)
      if (const Node* value = section.find(binding.key)) binding.read(out, *value);
    for (const auto& fill : fills_) fill(out);
    for (const auto& rule : rules_)
      if (std::string complaint = rule(out); !complaint.empty())
        throw Error(ErrorCode::config, section.where(), complaint);
    return out;
  }

  // Every field with its value, in the order of the schema.
  Node write(const Struct& value) const {
    std::vector<Node::Entry> entries;
    for (const Binding& binding : bindings_) entries.emplace_back(binding.key, binding.write(value));
    return Node::map(std::move(entries));
  }

  // The keys marked later() whose value is not the default, as "key: why".
  std::vector<std::string> not_built(const Struct& value) const {
    std::vector<std::string> out;
    const Struct defaults{};
    for (size_t i = 0; i < bindings_.size(); ++i) {
      if (fields_[i].later.empty() || bindings_[i].write(value) == bindings_[i].write(defaults)) continue;
      const auto built = built_.find(bindings_[i].key);
      if (built == built_.end() || !built->second(value))
        out.push_back(bindings_[i].key + ": " + fields_[i].later);
    }
    return out;
  }

 private:
  struct Binding {
    std::string key;
    std::function<void(Struct&, const Node&)> read;
    std::function<Node(const Struct&)> write;
  };

  template <class Bound>
  static std::string range_text(const Range<Bound>& range) {
    const std::string low = FieldType<Bound>::write(range.low).written();
    if (range.high == std::numeric_limits<Bound>::max()) return "at least " + low;
    return low + " to " + FieldType<Bound>::write(range.high).written();
  }

  template <class T>
  ConfigSchema& bind(std::string key, T Struct::*slot, std::string help, std::string range,
                     std::function<T(const Node&)> read) {
    const Node default_value = FieldType<T>::write(Struct{}.*slot);
    add({key, FieldType<T>::type_name(), config::to_json(default_value), std::move(range), std::move(help),
         ""});
    bindings_.push_back({key, [slot, read](Struct& out, const Node& value) { out.*slot = read(value); },
                         [slot](const Struct& in) { return FieldType<T>::write(in.*slot); }});
    return *this;
  }

  std::vector<Binding> bindings_;
  std::map<std::string, std::function<bool(const Struct&)>> built_;
  std::vector<std::function<void(Struct&)>> fills_;
  std::vector<std::function<std::string(const Struct&)>> rules_;
};

}  // namespace heddle

#include "heddle/config/field_types.h"
