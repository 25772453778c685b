// Reading and checking the header of a safetensors file: nothing in it is trusted.
#include "lib/checkpoint/safetensors/safetensors_header.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/nesting.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors/dtype_names.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

constexpr uint64_t kLongestHeader = 100'000'000;

[[noreturn]] void refuse(const std::string& file, const std::string& message,
                         const std::string& hint = "write or download the file again") {
  throw Error(ErrorCode::input, file, message, hint);
}

[[noreturn]] void refuse_tensor(const std::string& file, const std::string& name,
                                const std::string& message) {
  refuse(file, "tensor " + text::quoted(name) + ": " + message);
}

// Limits the length of a message.
std::string shown(const json& value) {
  constexpr size_t kMost = 200;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

// Finds a key that occurs twice in one object, which the JSON library accepts. Its parser with a callback
// would find it too, in quadratic time.
class Twice : public nlohmann::json_sax<json> {
 public:
  std::string found;  // empty where there is none

  bool key(string_t& name) override {
    if (!open_.back().insert(name).second) found = name;
    return found.empty();
  }
  bool start_object(size_t) override { return open_.emplace_back(), true; }
  bool end_object() override { return open_.pop_back(), true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  std::vector<std::set<std::string>> open_;
};

// The parser quotes the last characters it read; a header may end in a page of blanks.
std::string without_padding(std::string_view words) {
  std::string out;
  for (const char c : words)
    if (c != ' ' || !out.ends_with(' ')) out += c;
  return out;
}

json parse(std::string_view text, const std::string& file) {
  if (text::nests_deeper(text, text::kDeepest))
    refuse(file, "the header nests deeper than " + std::to_string(text::kDeepest));
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception& error) {
    refuse(file, "the header is not JSON: " + text::excerpt(without_padding(error.what()), 400));
  }
  Twice twice;
  json::sax_parse(text, &twice);
  if (!twice.found.empty()) refuse(file, "the header holds " + text::quoted(twice.found) + " twice");
  if (!parsed.is_object()) refuse(file, "the header is not a JSON object");
  return parsed;
}

std::optional<uint64_t> bytes_of(const std::vector<int64_t>& shape, uint64_t item) {
  uint64_t total = item;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) return std::nullopt;
  return total;
}

std::vector<int64_t> read_shape(const json& entry, const std::string& name, const std::string& file) {
  std::vector<int64_t> shape;
  for (const json& size : entry.at("shape")) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      refuse_tensor(file, name, "the shape holds " + shown(size) + ", not a size");
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

StoredTensor read_entry(const json& entry, const std::string& name, uint64_t data_bytes,
                        const std::string& file) {
  const bool whole = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
                     entry.contains("shape") && entry["shape"].is_array() && entry.contains("data_offsets") &&
                     entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2 &&
                     entry["data_offsets"][0].is_number_unsigned() &&
                     entry["data_offsets"][1].is_number_unsigned();
  if (!whole) refuse_tensor(file, name, "expected dtype, shape and two data_offsets, got " + shown(entry));
  const auto dtype = dtype_named(entry["dtype"].get<std::string>());
  if (!dtype) refuse_tensor(file, name, "the dtype " + shown(entry["dtype"]) + " is not known");
  StoredTensor stored{*dtype, read_shape(entry, name, file), entry["data_offsets"][0].get<uint64_t>(),
                      entry["data_offsets"][1].get<uint64_t>()};
  if (stored.begin > stored.end || stored.end > data_bytes)
    refuse_tensor(file, name,
                  "the bytes " + std::to_string(stored.begin) + " to " + std::to_string(stored.end) +
                      " are not in the file, which holds " + std::to_string(data_bytes));
  const auto needed =
      countable(stored.shape) ? bytes_of(stored.shape, c10::elementSize(*dtype)) : std::nullopt;
  if (!needed || *needed != stored.end - stored.begin)
    refuse_tensor(file, name,
                  "shape " + shown(entry["shape"]) + " of " + entry["dtype"].get<std::string>() + " takes " +
                      (needed ? std::to_string(*needed) : "too many") + " bytes, the offsets give " +
                      std::to_string(stored.end - stored.begin));
  return stored;
}

// The tensors fill the file without overlaps and holes.
void check_cover(const Header& header, uint64_t data_bytes, const std::string& file) {
  std::vector<std::pair<const StoredTensor*, const std::string*>> order;
  for (const auto& [name, stored] : header.tensors) order.emplace_back(&stored, &name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  uint64_t at = 0;
  for (const auto& [stored, name] : order) {
    if (stored->begin < at) refuse_tensor(file, *name, "its bytes overlap those of another tensor");
    if (stored->begin > at)
      refuse_tensor(file, *name,
                    "there is a hole of " + std::to_string(stored->begin - at) + " bytes before it");
    at = stored->end;
  }
  if (at != data_bytes)
    refuse(file, "the tensors end at byte " + std::to_string(at) + " of " + std::to_string(data_bytes));
}

}  // namespace

Header read_header(std::string_view bytes, const std::string& file) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    refuse(file, "cut: " + std::to_string(bytes.size()) +
                     " bytes, a safetensors file starts with 8 bytes of length");
  std::memcpy(&length, bytes.data(), sizeof length);  // little endian, as all supported machines
  if (length > kLongestHeader)
    refuse(file, "the header's length of " + std::to_string(length) + " bytes is too large",
           "is this a safetensors file?");
  if (length > bytes.size() - sizeof length)
    refuse(file, "cut: the header needs " + std::to_string(length) + " bytes, the file holds " +
                     std::to_string(bytes.size() - sizeof length));
  const json parsed = parse(bytes.substr(sizeof length, length), file);
  Header header{{}, {}, sizeof length + length};
  const uint64_t data_bytes = bytes.size() - header.data;
  for (const auto& [name, entry] : parsed.items()) {
    if (name != "__metadata__") {
      header.tensors.emplace(name, read_entry(entry, name, data_bytes, file));
    } else if (entry.is_object()) {
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) header.metadata.emplace(key, value.get<std::string>());
    }
  }
  check_cover(header, data_bytes, file);
  return header;
}

}  // namespace heddle::checkpoint
