// From the text of a config.json to a Node.
#include "lib/checkpoint/huggingface/read_config.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse_config(const Mark& mark, const std::string& message) {
  throw Error(ErrorCode::input, Node::null(mark, "").where(), message);
}

constexpr size_t kMostNested = 32, kMostNodeBytes = 64u << 20, kLargestConfig = 16u << 20;

// `left`: the remaining bytes for values and paths.
Node to_node(const ordered_json& value, const Mark& mark, const std::string& path, size_t& left,
             size_t depth = 0) {
  if (depth > kMostNested) refuse_config(mark, "nested deeper than " + std::to_string(kMostNested));
  if (left < sizeof(Node) + path.size())
    refuse_config(mark, "its keys and values take more than " + std::to_string(kMostNodeBytes) + " bytes");
  left -= sizeof(Node) + path.size();
  if (value.is_boolean()) return Node::boolean(value.get<bool>(), mark, path);
  const bool is_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
  if (value.is_number_integer() && !is_large) return Node::integer(value.get<int64_t>(), mark, path);
  if (value.is_number()) return Node::real(value.get<double>(), mark, path);
  if (value.is_string()) return Node::text(value.get<std::string>(), mark, path);
  if (value.is_array()) {
    std::vector<Node> items;
    for (size_t i = 0; i < value.size(); ++i)
      items.push_back(to_node(value[i], mark, path + "[" + std::to_string(i) + "]", left, depth + 1));
    return Node::list(std::move(items), mark, path);
  }
  if (!value.is_object()) return Node::null(mark, path);
  std::vector<Node::Entry> entries;
  for (const auto& [key, item] : value.items())
    entries.emplace_back(key, to_node(item, mark, path.empty() ? key : path + "." + key, left, depth + 1));
  return Node::map(std::move(entries), mark, path);
}

}  // namespace

Node parse_config_json(std::string_view bytes, const std::string& name) {
  size_t left = kMostNodeBytes;
  return to_node(parse_hf_json(bytes, name), {name, 0, 0}, "", left);
}

Node read_config_json(const std::filesystem::path& file) {
  refuse_irregular(file, ErrorCode::input);
  std::ifstream stream(file);
  if (!stream)
    throw Error(ErrorCode::input, file.string(), "cannot be read",
                "name a Hugging Face directory, which holds a config.json");
  if (const auto size = std::filesystem::file_size(file); size > kLargestConfig)
    throw Error(
        ErrorCode::input, file.string(),
        "has " + std::to_string(size) + " bytes; at most " + std::to_string(kLargestConfig) + " are read");
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return parse_config_json(bytes.view(), file.string());
}

}  // namespace heddle::checkpoint
