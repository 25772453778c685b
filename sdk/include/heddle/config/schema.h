// Binds the keys of one YAML section to the fields of one struct; the struct's initialisers are the defaults.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"

namespace heddle {

// Both ends are allowed values. The error of a number below `low` is "expected ..., got X", or "KEY MESSAGE,
// got X" where there is a message such as "must be greater than 0 or null".
template <class T>
struct Range {
  T low, high;
  std::string message = {};
};

template <class T>
Range<T> at_least(T low, std::string message = "") {
  return {low, std::numeric_limits<T>::max(), std::move(message)};
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

// The errors of a section, and its keys without a usable value.
class HEDDLE_API SectionErrors {
 public:
  Errors errors;
  std::vector<std::string> unread;   // keys with a wrong value, and keys that an unknown key misspells
  std::vector<std::string> unknown;  // keys that no field has

  bool has(std::string_view unread_key) const;
  // Runs a check of these keys unless one of them is unread. After an error all of them are unread.
  template <class Work>
  void check(std::initializer_list<const char*> keys, const Work& work) {
    for (const char* key : keys)
      if (has(key)) return;
    if (!errors.attempt(work)) unread.insert(unread.end(), keys.begin(), keys.end());
  }
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

HEDDLE_API Error range_error(const Node& value, const std::string& range, const std::string& message = "");
// The matching word of the list. Throws Error{config} with the nearest one.
HEDDLE_API std::string word_of(const Node& value, const std::vector<std::string>& words);

namespace config {

// The map without its `_target_`, whose last component must be `name` if it is given. Throws Error{config}.
HEDDLE_API Node without_target(const Node& map, const std::string& name);

// How the value of one field is checked, read and written, wherever it lies.
struct FieldValue {
  std::string type, range;
  std::function<void(const Node& from, void* to)> read;
  Node (*write)(const void* from);
};

// Those of a type T. They know no struct, so the library has them for the common types (field_types.h).
template <class T>
FieldValue plain_value();
template <class T>
FieldValue word_value(OneOf allowed);
template <class T>
FieldValue checked_value(Check check);
template <class T, class Bound>
FieldValue ranged_value(Range<Bound> range);

}  // namespace config

// The part of a schema that is independent of the struct: fields by their offset in it, the table of fields,
// errors.
class HEDDLE_API SchemaTable {
 public:
  const std::vector<FieldInfo>& fields() const { return fields_; }

 protected:
  void add(std::string key, std::string help, size_t offset, config::FieldValue value,
           const void* default_value);
  FieldInfo& of(const std::string& key);  // throws Error{internal} for a key that no field has
  void read_to(void* out, const Node& section, SectionErrors& found) const;
  Node write_from(const void* value) const;
  std::vector<std::string> not_built_of(const void* value, const void* defaults) const;

  std::vector<std::function<void(void*)>> fills_;
  std::vector<std::function<std::string(const void*)>> rules_;
  std::vector<std::pair<std::string, std::function<bool(const void*)>>> built_;

 private:
  struct Binding {
    size_t offset;
    config::FieldValue value;
  };

  const Binding* binding(const std::string& key) const;  // null: no field has the key
  bool is_built(const std::string& key, const void* value) const;

  std::vector<FieldInfo> fields_;
  std::vector<Binding> bindings_;  // of the fields, in their order
};

template <class Struct>
class ConfigSchema : public SchemaTable {
 public:
  // The key reads into the slot; absent keys keep the struct's initialiser.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help) {
    return bind(std::move(key), slot, std::move(help), config::plain_value<T>());
  }

  // The same for a word, or a word or null, out of a list.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, OneOf allowed) {
    return bind(std::move(key), slot, std::move(help), config::word_value<T>(std::move(allowed)));
  }

  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Check check) {
    return bind(std::move(key), slot, std::move(help), config::checked_value<T>(std::move(check)));
  }

  // The same with a range for the value (of an optional: of what it holds).
  template <class T, class Bound>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Range<Bound> range) {
    return bind(std::move(key), slot, std::move(help), config::ranged_value<T, Bound>(std::move(range)));
  }

  // A check over the whole struct, std::string(const Struct&); a non-empty message becomes an Error{config}
  // at the section.
  template <class Complaint>
  ConfigSchema& rule(Complaint complaint) {
    rules_.push_back([complaint](const void* value) -> std::string { return complaint(of_struct(value)); });
    return *this;
  }

  // Sets fields that depend on others, or defaults for null, void(Struct&): runs after all fields are read,
  // before the rules.
  template <class Fill>
  ConfigSchema& then(Fill fill) {
    fills_.push_back([fill](void* value) { fill(*static_cast<Struct*>(value)); });
    return *this;
  }

  // The field is read and checked, but a run accepts only its default until the feature is built.
  ConfigSchema& later(const std::string& key, std::string why) {
    of(key).later = std::move(why);
    return *this;
  }

  // The same if more than the default is built: `built`, bool(const Struct&), tells whether this value is.
  template <class Built>
  ConfigSchema& later(const std::string& key, std::string why, Built built) {
    built_.emplace_back(key, [built](const void* value) -> bool { return built(of_struct(value)); });
    return later(key, std::move(why));
  }

  // Throws Error{config} with file, line, key and the nearest key; an ErrorList where several keys are wrong.
  Struct read(const Node& section) const {
    SectionErrors found;
    Struct out = read(section, found);
    found.errors.raise();
    return out;
  }

  // Adds the errors to `found`; unread fields keep their initialisers. then() and the rules run where every
  // key is read. Throws Error{config} for a section that is not a map.
  Struct read(const Node& section, SectionErrors& found) const {
    Struct out{};
    read_to(&out, section, found);
    return out;
  }

  // Every field with its value, in the order of the schema.
  Node write(const Struct& value) const { return write_from(&value); }

  // The keys marked later() whose value is not the default, as "key: why".
  std::vector<std::string> not_built(const Struct& value) const { return not_built_of(&value, &defaults()); }

 private:
  static const Struct& of_struct(const void* value) { return *static_cast<const Struct*>(value); }
  static const Struct& defaults() {
    static const Struct value{};
    return value;
  }

  template <class T>
  ConfigSchema& bind(std::string key, T Struct::*slot, std::string help, config::FieldValue value) {
    const auto* field = reinterpret_cast<const char*>(&(defaults().*slot));
    add(std::move(key), std::move(help),
        static_cast<size_t>(field - reinterpret_cast<const char*>(&defaults())), std::move(value), field);
    return *this;
  }
};

}  // namespace heddle

#include "heddle/config/field_types.h"
