// Schema of a YAML section: binds its keys to the fields of a struct, whose initializers are the defaults.
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

// An allowed range, with both ends included. The error for a value out of range is "expected ..., got X", or
// "KEY MESSAGE, got X" with a message such as "must be greater than 0 or null".
template <class T>
struct Range {
  T low, high;
  std::string message = {};
};

template <class T>
Range<T> at_least(T low, std::string message = "") {
  return {low, std::numeric_limits<T>::max(), std::move(message)};
}

// An allowed set of words. Case is ignored, and a hyphen is read as an underscore.
struct OneOf {
  std::vector<std::string> words;
};

// A check of the YAML value before it is read, which throws Error{config}. `range` describes it in the table
// of fields.
struct Check {
  std::string range;
  std::function<void(const Node&)> run;
};

// The errors of a section and the keys that have no usable value.
class HEDDLE_API SectionErrors {
 public:
  Errors errors;
  std::vector<std::string> unread;   // keys with an invalid value, and keys that an unknown key misspells
  std::vector<std::string> unknown;  // keys without a field

  bool has(std::string_view unread_key) const;
  // Runs a check that depends on these keys, unless one of them is unread. If it fails, all of them become
  // unread.
  template <class Work>
  void check(std::initializer_list<const char*> keys, const Work& work) {
    for (const char* key : keys)
      if (has(key)) return;
    if (!errors.attempt(work)) unread.insert(unread.end(), keys.begin(), keys.end());
  }
};

// A dtype name: "float32", "bfloat16", ... Empty for null.
struct DTypeWord {
  std::string word;
  bool operator==(const DTypeWord&) const = default;
};

// Description of one field, as `heddle plugins inspect` prints it.
struct FieldInfo {
  std::string key, type, default_value, range, help;
  // The reason why only the default is built; empty if the feature is built. Other values are still checked.
  std::string later;
};

// Converts between a Node and a C++ type. Specialize it for your own types:
//   static std::string type_name();
//   static T read(const Node&);            // throws Error{config} at the node
//   static Node write(const T&);
template <class T>
struct FieldType;

// Returns the error of a value out of `range`; see Range::message.
HEDDLE_API Error range_error(const Node& value, const std::string& range, const std::string& message = "");
// Returns the word of the list that matches. Throws Error{config} with the nearest word.
HEDDLE_API std::string read_word(const Node& value, const std::vector<std::string>& words);

namespace config {

// Returns the map without `_target_`. The last component of `_target_` must be `name`, unless `name` is
// empty. Throws Error{config}.
HEDDLE_API Node without_target(const Node& map, const std::string& name);

// How to check, read and write the value of one field, independent of the struct.
struct FieldValue {
  std::string type, range;
  std::function<void(const Node& from, void* to)> read;
  Node (*write)(const void* from);
};

// Values of a type T. They do not depend on a struct, so the library instantiates the common types
// (field_types.h).
template <class T>
FieldValue plain_value();
template <class T>
FieldValue word_value(OneOf allowed);
template <class T>
FieldValue checked_value(Check check);
template <class T, class Bound>
FieldValue ranged_value(Range<Bound> range);

}  // namespace config

// The part of a schema that does not depend on the struct type: fields by offset, the table of fields,
// errors.
class HEDDLE_API SchemaTable {
 public:
  const std::vector<FieldInfo>& fields() const { return fields_; }

 protected:
  void add(std::string key, std::string help, size_t offset, config::FieldValue value,
           const void* default_value);
  FieldInfo& of(const std::string& key);  // throws Error{internal} for an unknown key
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

  const Binding* binding(const std::string& key) const;  // null if no field has the key
  bool is_built(const std::string& key, const void* value) const;

  std::vector<FieldInfo> fields_;
  std::vector<Binding> bindings_;  // parallel to fields_
};

// The schema of a section that is read into a Struct.
template <class Struct>
class ConfigSchema : public SchemaTable {
 public:
  // Adds a field that stores the value of the key. If the key is absent, the initializer of the struct
  // remains.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help) {
    return bind(std::move(key), slot, std::move(help), config::plain_value<T>());
  }

  // Adds a field whose value is one of the words, or null if T is an optional.
  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, OneOf allowed) {
    return bind(std::move(key), slot, std::move(help), config::word_value<T>(std::move(allowed)));
  }

  template <class T>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Check check) {
    return bind(std::move(key), slot, std::move(help), config::checked_value<T>(std::move(check)));
  }

  // Adds a field with a range. The range of an optional applies to its value.
  template <class T, class Bound>
  ConfigSchema& field(std::string key, T Struct::*slot, std::string help, Range<Bound> range) {
    return bind(std::move(key), slot, std::move(help), config::ranged_value<T, Bound>(std::move(range)));
  }

  // Adds a check of the whole struct, std::string(const Struct&). A non-empty result becomes an Error{config}
  // at the section.
  template <class Complaint>
  ConfigSchema& rule(Complaint complaint) {
    rules_.push_back([complaint](const void* value) -> std::string { return complaint(of_struct(value)); });
    return *this;
  }

  // Adds a function void(Struct&) that sets dependent fields or resolves null. Runs after all fields are read
  // and before the rules.
  template <class Fill>
  ConfigSchema& then(Fill fill) {
    fills_.push_back([fill](void* value) { fill(*static_cast<Struct*>(value)); });
    return *this;
  }

  // Marks a field whose feature is not built yet: any valid value is read, but a run accepts only the
  // default.
  ConfigSchema& later(const std::string& key, std::string why) {
    of(key).later = std::move(why);
    return *this;
  }

  // Marks a field of which only some values are built: `built`, bool(const Struct&), returns whether the
  // value is.
  template <class Built>
  ConfigSchema& later(const std::string& key, std::string why, Built built) {
    built_.emplace_back(key, [built](const void* value) -> bool { return built(of_struct(value)); });
    return later(key, std::move(why));
  }

  // Reads a section. Throws Error{config} with file, line, key and the nearest key, or an ErrorList for
  // several errors.
  Struct read(const Node& section) const {
    SectionErrors found;
    Struct out = read(section, found);
    found.errors.raise();
    return out;
  }

  // Reads a section and adds its errors to `found`. Unread fields keep their initializers. Functions of
  // then() and rules run only if every key was read. Throws Error{config} if the section is not a map.
  Struct read(const Node& section, SectionErrors& found) const {
    Struct out{};
    read_to(&out, section, found);
    return out;
  }

  // Returns every field with its value, in the order of the schema.
  Node write(const Struct& value) const { return write_from(&value); }

  // Returns "key: why" for each key marked with later() whose value is not built.
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
