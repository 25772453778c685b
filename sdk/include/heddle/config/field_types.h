// The types that a field may have: bool, integers, reals, strings, dtypes, optionals, lists, and a raw Node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle {

#define HEDDLE_FIELD_TYPE(T)           \
  template <>                          \
  struct HEDDLE_API FieldType<T> {     \
    static std::string type_name();    \
    static T read(const Node& value);  \
    static Node write(const T& value); \
  }

HEDDLE_FIELD_TYPE(bool);
HEDDLE_FIELD_TYPE(int64_t);
HEDDLE_FIELD_TYPE(double);
HEDDLE_FIELD_TYPE(std::string);
HEDDLE_FIELD_TYPE(DTypeWord);
HEDDLE_FIELD_TYPE(Node);  // taken as it stands
#undef HEDDLE_FIELD_TYPE

// null is "no value".
template <class T>
struct FieldType<std::optional<T>> {
  static std::string type_name() { return FieldType<T>::type_name() + " or null"; }
  static std::optional<T> read(const Node& value) {
    if (value.is_null()) return std::nullopt;
    return FieldType<T>::read(value);
  }
  static Node write(const std::optional<T>& value) { return value ? FieldType<T>::write(*value) : Node(); }
};

template <class T>
struct FieldType<std::vector<T>> {
  static std::string type_name() { return "list of " + FieldType<T>::type_name(); }
  static std::vector<T> read(const Node& value) {
    if (!value.is_list())
      throw Error(ErrorCode::config, value.where(), "expected a " + type_name() + ", got " + value.written());
    std::vector<T> out;
    for (const Node& item : value.items()) out.push_back(FieldType<T>::read(item));
    return out;
  }
  static Node write(const std::vector<T>& value) {
    std::vector<Node> items;
    for (const T& item : value) items.push_back(FieldType<T>::write(item));
    return Node::list(std::move(items));
  }
};

// A struct with a schema of its own is a section inside a section:
//   template <> struct FieldType<Inner> : SectionField<Inner, &inner_schema> {};
template <class Inner, auto schema>
struct SectionField {
  static std::string type_name() { return "map"; }
  static Inner read(const Node& value) { return schema().read(value); }
  static Node write(const Inner& value) { return schema().write(value); }
};

}  // namespace heddle
