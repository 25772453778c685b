// FieldType of the types that a field may have: bool, integers, reals, strings, dtypes, optionals, lists,
// Node.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
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
HEDDLE_FIELD_TYPE(Node);  // the value as read
#undef HEDDLE_FIELD_TYPE

// An optional reads null as no value.
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

// The field type of a struct with its own schema, which is a nested section:
//   template <> struct FieldType<Inner> : SectionField<Inner, &inner_schema> {};
template <class Inner, auto schema>
struct SectionField {
  static std::string type_name() { return "map"; }
  static Inner read(const Node& value) { return schema().read(value); }
  static Node write(const Inner& value) { return schema().write(value); }
};

namespace config {

template <class T>
Node write_value(const void* from) {
  return FieldType<T>::write(*static_cast<const T*>(from));
}

template <class T>
FieldValue plain_value() {
  return {FieldType<T>::type_name(), "",
          [](const Node& from, void* to) { *static_cast<T*>(to) = FieldType<T>::read(from); },
          write_value<T>};
}

template <class T>
FieldValue word_value(OneOf allowed) {
  const std::string range = text::join(allowed.words);
  const auto read = [words = std::move(allowed.words)](const Node& from, void* to) {
    T value = FieldType<T>::read(from);
    if constexpr (requires { value.has_value(); }) {
      if (value) value = read_word(from, words);
    } else {
      value = read_word(from, words);
    }
    *static_cast<T*>(to) = std::move(value);
  };
  return {FieldType<T>::type_name(), range, read, write_value<T>};
}

template <class T>
FieldValue checked_value(Check check) {
  const auto read = [run = std::move(check.run)](const Node& from, void* to) {
    run(from);
    *static_cast<T*>(to) = FieldType<T>::read(from);
  };
  return {FieldType<T>::type_name(), check.range, read, write_value<T>};
}

template <class T, class Bound>
FieldValue ranged_value(Range<Bound> range) {
  const std::string low = FieldType<Bound>::write(range.low).written();
  const std::string text = range.high == std::numeric_limits<Bound>::max()
                               ? "at least " + low
                               : low + " to " + FieldType<Bound>::write(range.high).written();
  const auto read = [range = std::move(range), text](const Node& from, void* to) {
    T value = FieldType<T>::read(from);
    const auto check = [&](const Bound& number) {
      if (!(number >= range.low)) throw range_error(from, text, range.message);
      if (!(number <= range.high))
        throw range_error(
            from, text,
            range.message.empty() ? "" : "must be at most " + FieldType<Bound>::write(range.high).written());
    };
    if constexpr (requires { value.has_value(); }) {
      if (value) check(*value);
    } else {
      check(value);
    }
    *static_cast<T*>(to) = std::move(value);
  };
  return {FieldType<T>::type_name(), text, read, write_value<T>};
}

// The library instantiates the common types, so a source file instantiates only its own.
#define HEDDLE_FIELD_VALUE(keyword, ...)                             \
  keyword template HEDDLE_API FieldValue plain_value<__VA_ARGS__>(); \
  keyword template HEDDLE_API FieldValue checked_value<__VA_ARGS__>(Check)
#define HEDDLE_FIELD_NUMBER(keyword, ...)                                               \
  HEDDLE_FIELD_VALUE(keyword, __VA_ARGS__);                                             \
  HEDDLE_FIELD_VALUE(keyword, std::optional<__VA_ARGS__>);                              \
  keyword template HEDDLE_API FieldValue ranged_value<__VA_ARGS__>(Range<__VA_ARGS__>); \
  keyword template HEDDLE_API FieldValue ranged_value<std::optional<__VA_ARGS__>>(Range<__VA_ARGS__>)
#define HEDDLE_FIELD_VALUES(keyword)                                     \
  HEDDLE_FIELD_NUMBER(keyword, int64_t);                                 \
  HEDDLE_FIELD_NUMBER(keyword, double);                                  \
  HEDDLE_FIELD_VALUE(keyword, bool);                                     \
  HEDDLE_FIELD_VALUE(keyword, std::optional<bool>);                      \
  HEDDLE_FIELD_VALUE(keyword, std::string);                              \
  HEDDLE_FIELD_VALUE(keyword, std::optional<std::string>);               \
  HEDDLE_FIELD_VALUE(keyword, std::vector<std::string>);                 \
  HEDDLE_FIELD_VALUE(keyword, DTypeWord);                                \
  HEDDLE_FIELD_VALUE(keyword, Node);                                     \
  keyword template HEDDLE_API FieldValue word_value<std::string>(OneOf); \
  keyword template HEDDLE_API FieldValue word_value<std::optional<std::string>>(OneOf)
HEDDLE_FIELD_VALUES(extern);

}  // namespace config
}  // namespace heddle
