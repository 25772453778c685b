// Looking for the end token.
#include "lib/run/data/tokenizer/end_tokens.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/nesting.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/run/data/tokenizer/tokenizer.h"

namespace heddle {
namespace {

using nlohmann::json;

// An object; empty where there is no such file.
json read_object(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return json::object();
  checkpoint::refuse_large_note(file);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  json value;
  if (!text::nests_deeper(bytes, text::kDeepest)) value = json::parse(bytes, nullptr, false);
  if (!value.is_object())
    throw Error(ErrorCode::input, file.string(), "is not a JSON object", "copy the file again");
  return value;
}

std::vector<int64_t> ids_in(const json& words) {
  std::vector<int64_t> ids;
  const json found = words.value("eos_token_id", json());
  if (found.is_number_integer()) ids.push_back(found.get<int64_t>());
  if (found.is_array())
    for (const json& id : found)
      if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  return ids;
}

std::vector<int64_t> configured_ids(const std::filesystem::path& model) {
  std::vector<int64_t> ids = ids_in(read_object(model / "generation_config.json"));
  return ids.empty() ? ids_in(read_object(model / "config.json")) : ids;
}

// The text of eos_token, which may be an object with its properties; empty: not named.
std::string named_token(const std::filesystem::path& model) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    json token = read_object(model / name).value("eos_token", json());
    if (token.is_object()) token = token.value("content", json());
    if (token.is_string()) return token.get<std::string>();
  }
  return "";
}

}  // namespace

std::vector<int64_t> stop_tokens(const std::filesystem::path& model, Tokenizer* tokenizer) {
  std::vector<int64_t> ids = configured_ids(model);
  if (!ids.empty() || tokenizer == nullptr) return ids;
  const std::string token = named_token(model);
  if (const auto id = token.empty() ? std::nullopt : tokenizer->id_of(token)) ids.push_back(*id);
  return ids;
}

int64_t separator(const std::filesystem::path& model, const std::string& named, Tokenizer& tokenizer) {
  const std::string token = named.empty() ? named_token(model) : named;
  if (!token.empty()) {
    if (const auto id = tokenizer.id_of(token)) return *id;
    throw Error(ErrorCode::input, tokenizer.file().string(),
                "has no token '" + text::excerpt(token) + "'" +
                    (named.empty() ? ", which the model's files name as its end" : ""),
                "name the token between documents: --end-token TOKEN");
  }
  for (const int64_t id : configured_ids(model))
    if (id >= 0 && id < tokenizer.vocabulary()) return id;
  throw Error(
      ErrorCode::input, model.string(),
      "its end token is not known: tokenizer_config.json, special_tokens_map.json, generation_config.json "
      "and config.json name none of the vocabulary",
      "name the token between documents: --end-token TOKEN");
}

}  // namespace heddle
