// Flattening of the configuration to parameters.
#include "params.h"

#include <algorithm>
#include <filesystem>
#include <functional>

namespace heddle::mlflow {
namespace {

constexpr size_t kLongestKey = 250, kLongestValue = 6000;

bool is_allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view(" _-.:/").find(c) != std::string_view::npos;
}

std::string value_of(const Node& value) {
  std::string out = value.kind() == Node::Kind::text ? value.as_text() : config::to_json(value);
  if (out.size() <= kLongestValue) return out;
  size_t size = kLongestValue;
  while (size > 0 && (static_cast<unsigned char>(out[size]) & 0xC0) == 0x80)
    --size;  // inside a UTF-8 character
  return out.substr(0, size);
}

}  // namespace

bool is_key(const std::string& text) {
  const std::filesystem::path path = text;
  return !text.empty() && text.size() <= kLongestKey && std::all_of(text.begin(), text.end(), is_allowed) &&
         path.is_relative() && path.lexically_normal() == path && path.has_filename() &&
         *path.begin() != ".." && path != ".";
}

std::string key_of(const std::string& text) {
  std::string out = text.substr(0, kLongestKey);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !is_allowed(c); }, '_');
  if (!is_key(out))
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c == '/' || c == '.'; }, '_');
  return out.empty() ? "_" : out;
}

Texts params_of(const Node& configuration, std::optional<int64_t> depth) {
  Texts out;
  const std::function<void(const Node&, const std::string&, int64_t)> add =
      [&](const Node& map, const std::string& prefix, int64_t level) {
        for (const auto& [key, value] : map.entries()) {
          if (value.is_map() && value.size() > 0 && (!depth || level < *depth)) {
            add(value, prefix + key + ".", level + 1);
            continue;
          }
          std::string whole = prefix + key;
          std::replace(whole.begin(), whole.end(), '/',
                       '_');  // "a" and "a/b" would need a file and a directory of one name
          out.emplace_back(key_of(whole), value_of(value));
        }
      };
  add(configuration, "", 0);
  return out;
}

}  // namespace heddle::mlflow
