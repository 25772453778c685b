// Python's words for numbers that JSON lacks are rewritten before the text is parsed.
#include "lib/checkpoint/huggingface/hf_json.h"

#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/nesting.h"
#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/huggingface/note_size.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFloat = "__float__";  // the key of transformers' form {"__float__": "Infinity"}
constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};

// Rewrites each word outside strings to transformers' form.
std::string with_tagged_words(std::string_view bytes) {
  if (bytes.find("Infinity") == bytes.npos && bytes.find("NaN") == bytes.npos) return std::string(bytes);
  std::string out;
  bool is_inside = false;  // a string
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (is_inside && bytes[at] == '\\') {
      out += bytes.substr(at, 2);
      ++at;
      continue;
    }
    if (bytes[at] == '"') is_inside = !is_inside;
    std::string_view found;
    if (!is_inside)
      for (const std::string_view word : kWords)
        if (found.empty() && bytes.substr(at, word.size()) == word) found = word;
    if (found.empty()) {
      out += bytes[at];
      continue;
    }
    out += R"({"__float__":")" + std::string(found) + "\"}";
    at += found.size() - 1;
  }
  return out;
}

std::optional<double> tagged_number(const ordered_json::object_t& object) {
  if (object.size() != 1 || object.begin()->first != kFloat || !object.begin()->second.is_string())
    return std::nullopt;
  const auto& word = object.begin()->second.get_ref<const std::string&>();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Keeps the last value of each key, at the place of the first.
void remove_repeated(ordered_json::object_t& object) {
  std::unordered_map<std::string_view, ordered_json*> firsts;
  for (auto& [key, value] : object)
    if (const auto [first, is_new] = firsts.try_emplace(key, &value); !is_new)
      *first->second = std::move(value);
  if (firsts.size() == object.size()) return;
  ordered_json::object_t once;
  for (auto& [key, value] : object)
    if (firsts.at(key) == &value) once.emplace_back(key, std::move(value));
  object = std::move(once);
}

// Builds values in linear time: nlohmann's own builder of ordered objects searches all keys for each key.
class Builder : public nlohmann::json_sax<ordered_json> {
 public:
  ordered_json result;
  std::string error;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(ordered_json::object()); }
  bool start_array(size_t) override { return open(ordered_json::array()); }
  bool key(string_t& key) override {
    open_.back().key = std::move(key);
    return true;
  }
  bool end_object() override {
    auto& object = open_.back().value.get_ref<ordered_json::object_t&>();
    remove_repeated(object);
    const std::optional<double> number = tagged_number(object);
    return close(number ? ordered_json(*number) : std::move(open_.back().value));
  }
  bool end_array() override { return close(std::move(open_.back().value)); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& what) override {
    error = what.what();
    return false;
  }

 private:
  struct Open {
    ordered_json value;
    std::string key = {};  // of the next value
  };

  bool open(ordered_json value) {
    open_.push_back({std::move(value)});
    return true;
  }
  bool close(ordered_json value) {
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(ordered_json value) {
    if (open_.empty())
      result = std::move(value);
    else if (ordered_json& parent = open_.back().value; parent.is_array())
      parent.push_back(std::move(value));
    else
      parent.get_ref<ordered_json::object_t&>().emplace_back(std::move(open_.back().key), std::move(value));
    return true;
  }

  std::vector<Open> open_;
};

std::string fault_in(std::string_view bytes, Builder& builder) {
  if (text::nests_deeper(bytes, text::kDeepest)) return "nests deeper than " + std::to_string(text::kDeepest);
  if (ordered_json::sax_parse(with_tagged_words(bytes), &builder)) return "";
  return "is not JSON: " + text::excerpt(builder.error, 400);
}

void append(std::string& out, const ordered_json& value, int indent, size_t margin) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    out += std::isnan(number) ? kWords[2] : number < 0 ? kWords[0] : kWords[1];
    return;
  }
  if (!value.is_structured() || value.empty()) {
    out += value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    return;
  }
  const size_t inner = margin + static_cast<size_t>(std::max(indent, 0));
  const auto line = [&](size_t spaces) {
    if (indent >= 0) out += "\n" + std::string(spaces, ' ');
  };
  out += value.is_array() ? '[' : '{';
  bool is_first = true;
  for (const auto& [key, item] : value.items()) {
    if (!std::exchange(is_first, false)) out += ',';
    line(inner);
    if (value.is_object())
      out += ordered_json(key).dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
             (indent >= 0 ? ": " : ":");
    append(out, item, indent, inner);
  }
  line(margin);
  out += value.is_array() ? ']' : '}';
}

}  // namespace

ordered_json parse_hf_json(std::string_view bytes, const std::string& name) {
  Builder builder;
  if (const std::string fault = fault_in(bytes, builder); !fault.empty())
    throw Error(ErrorCode::input, name, fault, "copy the file again");
  return std::move(builder.result);
}

ordered_json read_hf_json(const std::filesystem::path& file) {
  refuse_irregular(file, ErrorCode::input);
  refuse_large_note(file);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw Error(ErrorCode::input, file.string(), "cannot be read");
  ordered_json value = parse_hf_json(bytes, file.string());
  if (!value.is_object())
    throw Error(ErrorCode::input, file.string(), "is not a JSON object", "copy the file again");
  return value;
}

std::optional<ordered_json> hf_json_if_valid(std::string_view bytes) {
  Builder builder;
  if (!fault_in(bytes, builder).empty()) return std::nullopt;
  return std::move(builder.result);
}

std::string write_hf_json(const ordered_json& value, int indent) {
  std::string out;
  append(out, value, indent, 0);
  return out;
}

ordered_json to_hf_json(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::null:
      return nullptr;
    case Node::Kind::boolean:
      return node.as_boolean();
    case Node::Kind::integer:
      return node.as_integer();
    case Node::Kind::real:
      return node.as_real();
    case Node::Kind::text:
      return node.as_text();
    case Node::Kind::list: {
      ordered_json list = ordered_json::array();
      for (const Node& item : node.items()) list.push_back(to_hf_json(item));
      return list;
    }
    case Node::Kind::map: {
      ordered_json map = ordered_json::object();
      for (const auto& [key, value] : node.entries()) map[key] = to_hf_json(value);
      return map;
    }
  }
  return nullptr;
}

}  // namespace heddle::checkpoint
