// Values as one line of JSON, and as YAML that reads back to the same values.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/config/scalar.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"

namespace heddle::config {
namespace {

// JSON has no infinity and no NaN; they are printed as strings.
std::string json_real(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value < 0 ? "\"-inf\"" : "\"inf\"";
  return nlohmann::json(value).dump();
}

std::string yaml_real(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  return nlohmann::json(value).dump();
}

// A string that no rule reads as another type.
bool is_plain(const std::string& word) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  return !word.empty() && word.find_first_not_of(kSafe) == word.npos && word[0] != '-' && word[0] != '.' &&
         !yaml_meaning(word, {}, "") && string_meaning(word, {}, "") == Node::text(word);
}

// Quoted so that neither YAML nor the rules for literals and variables change it.
std::string yaml_text(const std::string& word) {
  if (is_plain(word)) return word;
  if (word.find('$') == word.npos && string_meaning(word, {}, "") == Node::text(word))
    return text::quoted(word);
  std::string literal = "'";
  for (const char c : word) {
    if (c == '$')
      literal += "\\x24";
    else if (c == '\'' || c == '\\')
      literal += std::string("\\") + c;
    else if (c == '\n')
      literal += "\\n";
    else
      literal += c;
  }
  return text::quoted(literal + "'");
}

std::string yaml_key(const std::string& key) {
  constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  const bool safe = !key.empty() && key.find_first_not_of(kSafe) == key.npos;
  return safe ? key : text::quoted(key);
}

void yaml(const Node& node, int indent, std::string& out);

void yaml_entry(const std::string& key, const Node& value, int indent, std::string& out) {
  if (value.kind() == Node::Kind::text && names_code(key)) {  // read back as plain strings
    out += " " + text::quoted(value.as_text()) + "\n";
    return;
  }
  const bool block = (value.is_map() || value.is_list()) && value.size() > 0;
  out += block ? "\n" : " ";
  yaml(value, block ? indent + 2 : 0, out);
}

void yaml(const Node& node, int indent, std::string& out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  switch (node.kind()) {
    case Node::Kind::null:
      out += "null\n";
      return;
    case Node::Kind::boolean:
      out += node.as_boolean() ? "true\n" : "false\n";
      return;
    case Node::Kind::integer:
      out += std::to_string(node.as_integer()) + "\n";
      return;
    case Node::Kind::real:
      out += yaml_real(node.as_real()) + "\n";
      return;
    case Node::Kind::text:
      out += yaml_text(node.as_text()) + "\n";
      return;
    case Node::Kind::list:
      if (node.size() == 0) out += "[]\n";
      for (const Node& item : node.items()) {
        out += margin + "-";
        yaml_entry("", item, indent, out);
      }
      return;
    case Node::Kind::map:
      if (node.size() == 0) out += "{}\n";
      for (const auto& [key, value] : node.entries()) {
        out += margin + yaml_key(key) + ":";
        yaml_entry(key, value, indent, out);
      }
      return;
  }
}

}  // namespace

std::string to_json(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::boolean:
      return node.as_boolean() ? "true" : "false";
    case Node::Kind::integer:
      return std::to_string(node.as_integer());
    case Node::Kind::real:
      return json_real(node.as_real());
    case Node::Kind::text:
      return text::quoted(node.as_text());
    case Node::Kind::list: {
      std::vector<std::string> items;
      for (const Node& item : node.items()) items.push_back(to_json(item));
      return "[" + text::join(items) + "]";
    }
    case Node::Kind::map: {
      std::vector<std::string> items;
      for (const auto& [key, value] : node.entries())
        items.push_back(text::quoted(key) + ": " + to_json(value));
      return "{" + text::join(items) + "}";
    }
  }
  return "null";
}

std::string to_yaml(const Node& node) {
  std::string out;
  yaml(node, 0, out);
  return out;
}

}  // namespace heddle::config
