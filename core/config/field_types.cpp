// How booleans, numbers, words and dtypes are read from a node and written back.
#include "heddle/config/field_types.h"

#include <cmath>

#include "heddle/base/text.h"

namespace heddle {
namespace {

// The words for a dtype, and the name that torch prints for each.
constexpr std::pair<std::string_view, std::string_view> kDTypes[] = {
    {"float32", "float32"}, {"float", "float32"},       {"float64", "float64"},   {"double", "float64"},
    {"float16", "float16"}, {"half", "float16"},        {"bfloat16", "bfloat16"}, {"bf16", "bfloat16"},
    {"uint8", "uint8"},     {"int8", "int8"},           {"int16", "int16"},       {"short", "int16"},
    {"int32", "int32"},     {"int", "int32"},           {"int64", "int64"},       {"long", "int64"},
    {"bool", "bool"},       {"complex64", "complex64"}, {"cfloat", "complex64"}};

// Common misnomers of dtypes.
constexpr std::pair<std::string_view, std::string_view> kMeant[] = {
    {"fp16", "float16"}, {"f16", "float16"}, {"fp32", "float32"},  {"f32", "float32"},
    {"fp64", "float64"}, {"f64", "float64"}, {"bf16", "bfloat16"}, {"i64", "int64"}};

std::string dtype_hint(const std::string& bare) {
  for (const auto& [given, meant] : kMeant)
    if (given == bare) return "did you mean '" + std::string(meant) + "'?";
  std::vector<std::string> names;
  for (const auto& [name, printed] : kDTypes) names.emplace_back(name);
  const std::string near = text::nearest(bare, names);
  return near.empty() ? "a dtype is one of " + text::join(names) : "did you mean '" + near + "'?";
}

}  // namespace

std::string FieldType<bool>::type_name() {
  return "bool";
}
bool FieldType<bool>::read(const Node& value) {
  return value.as_boolean();
}
Node FieldType<bool>::write(const bool& value) {
  return Node::boolean(value);
}

std::string FieldType<int64_t>::type_name() {
  return "integer";
}
int64_t FieldType<int64_t>::read(const Node& value) {
  return value.as_integer();
}
Node FieldType<int64_t>::write(const int64_t& value) {
  return Node::integer(value);
}

std::string FieldType<double>::type_name() {
  return "number";
}
double FieldType<double>::read(const Node& value) {
  const double real = value.as_real();
  if (!std::isfinite(real))
    throw Error(ErrorCode::config, value.where(), "expected a finite number, got " + value.written());
  return real;
}
Node FieldType<double>::write(const double& value) {
  return Node::real(value);
}

std::string FieldType<std::string>::type_name() {
  return "word";
}
std::string FieldType<std::string>::read(const Node& value) {
  return value.as_text();
}
Node FieldType<std::string>::write(const std::string& value) {
  return Node::text(value);
}

std::string FieldType<DTypeWord>::type_name() {
  return "dtype or null";
}

DTypeWord FieldType<DTypeWord>::read(const Node& value) {
  if (value.is_null()) return {};
  if (value.kind() != Node::Kind::text)
    throw Error(ErrorCode::config, value.where(), "expected a dtype, got " + value.written());
  const std::string word = text::lower(value.as_text());
  const bool prefixed = word.starts_with("torch.");
  const std::string bare = prefixed ? word.substr(6) : word;
  for (const auto& [name, printed] : kDTypes)
    if (name == bare && !(prefixed && bare == "bf16")) return {std::string(printed)};
  throw Error(ErrorCode::config, value.where(), "unknown dtype " + value.written(), dtype_hint(bare));
}

Node FieldType<DTypeWord>::write(const DTypeWord& value) {
  return value.word.empty() ? Node() : Node::text(value.word);
}

std::string FieldType<Node>::type_name() {
  return "any";
}
Node FieldType<Node>::read(const Node& value) {
  return value;
}
Node FieldType<Node>::write(const Node& value) {
  return value;
}

namespace config {

HEDDLE_FIELD_VALUES();

}  // namespace config
}  // namespace heddle
