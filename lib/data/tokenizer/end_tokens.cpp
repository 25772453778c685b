// Finds end tokens in a model's files.
#include "lib/data/tokenizer/end_tokens.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <system_error>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/data/tokenizer/tokenizer.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr const char *kConfig = "config.json", *kGeneration = "generation_config.json";

// Reads a file by name as a JSON object; empty if it does not exist.
using ReadNote = std::function<ordered_json(const char* name)>;

ReadNote notes_in(const std::filesystem::path& directory) {
  return [directory](const char* name) {
    std::error_code ignored;
    const std::filesystem::path file = directory / name;
    return std::filesystem::is_regular_file(file, ignored) ? checkpoint::read_hf_json(file)
                                                           : ordered_json::object();
  };
}

ReadNote notes_in(const NoteFiles& files) {
  return [&files](const char* name) {
    const auto found = files.find(name);
    ordered_json value =
        found == files.end() ? ordered_json::object() : checkpoint::parse_hf_json(found->second, name);
    if (!value.is_object())
      throw Error(ErrorCode::input, name, "is not a JSON object", "copy the file again");
    return value;
  };
}

std::vector<int64_t> ids_in(const ordered_json& words) {
  std::vector<int64_t> ids;
  const ordered_json found = words.value("eos_token_id", ordered_json());
  if (found.is_number_integer()) ids.push_back(found.get<int64_t>());
  if (found.is_array())
    for (const ordered_json& id : found)
      if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  return ids;
}

std::vector<int64_t> configured_ids(const ReadNote& read) {
  std::vector<int64_t> ids = ids_in(read(kGeneration));
  return ids.empty() ? ids_in(read(kConfig)) : ids;
}

// Returns the text of eos_token, which may be an object; empty: not set.
std::string named_token(const ReadNote& read) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    ordered_json token = read(name).value("eos_token", ordered_json());
    if (token.is_object()) token = token.value("content", ordered_json());
    if (token.is_string()) return token.get<std::string>();
  }
  return "";
}

bool is_number(const std::string& digits) {
  return !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == digits.npos;
}

// Tokens of a tokenizer.json and of added_tokens_decoder.
class Vocabulary {
 public:
  explicit Vocabulary(const ReadNote& read) {
    const ordered_json whole = read("tokenizer.json");
    const ordered_json model = whole.value("model", ordered_json::object());
    if (model.is_object()) add_words(model.value("vocab", ordered_json()));
    for (const ordered_json& token : whole.value("added_tokens", ordered_json::array()))
      if (token.is_object() && token.contains("id") && token["id"].is_number_integer())
        add(token.value("content", ordered_json()), token["id"].get<int64_t>());
    const ordered_json decoder =
        read("tokenizer_config.json").value("added_tokens_decoder", ordered_json::object());
    for (const auto& [id, token] : decoder.items())
      if (token.is_object() && is_number(id)) add(token.value("content", ordered_json()), std::stoll(id));
  }

  std::optional<int64_t> id_of(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // Returns an empty text if no token has the id.
  std::string token_of(int64_t id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? "" : found->second;
  }

 private:
  void add(const ordered_json& token, int64_t id) {
    if (!token.is_string()) return;
    ids_[token.get<std::string>()] = id;
    tokens_[id] = token.get<std::string>();
  }
  // Adds a map of ids, or a list of tokens with scores.
  void add_words(const ordered_json& words) {
    if (words.is_object())
      for (const auto& [token, id] : words.items())
        if (id.is_number_integer()) add(token, id.get<int64_t>());
    if (words.is_array())
      for (size_t i = 0; i < words.size(); ++i)
        if (words[i].is_array() && !words[i].empty()) add(words[i][0], static_cast<int64_t>(i));
  }

  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<int64_t, std::string> tokens_;
};

std::optional<int64_t> eos_of(const ReadNote& read) {
  const std::string token = named_token(read);
  return token.empty() ? std::nullopt : Vocabulary(read).id_of(token);
}

bool has_same_tokenizer(const NoteFiles& files, const NoteFiles& own) {
  const auto mine = files.find("tokenizer.json"), before = own.find("tokenizer.json");
  return before == own.end() || (mine != files.end() && mine->second == before->second);
}

void set_ids(NoteFiles& files, const std::vector<int64_t>& ids) {
  ordered_json value = ids;
  if (ids.size() < 2) value = ids.empty() ? ordered_json() : ordered_json(ids.front());
  for (const char* name : {kConfig, kGeneration}) {
    if (!files.contains(name)) continue;
    ordered_json words = notes_in(files)(name);
    words["eos_token_id"] = value;
    files[name] = checkpoint::write_hf_json(words) + "\n";
  }
}

}  // namespace

std::vector<int64_t> stop_tokens(const std::filesystem::path& model, Tokenizer* tokenizer) {
  std::vector<int64_t> ids = configured_ids(notes_in(model));
  if (!ids.empty() || tokenizer == nullptr) return ids;
  const std::string token = named_token(notes_in(model));
  if (const auto id = token.empty() ? std::nullopt : tokenizer->id_of(token)) ids.push_back(*id);
  return ids;
}

std::vector<int64_t> stop_tokens(const NoteFiles& files) {
  const ReadNote read = notes_in(files);
  std::vector<int64_t> ids = configured_ids(read);
  if (const auto eos = ids.empty() ? eos_of(read) : std::nullopt) ids.push_back(*eos);
  return ids;
}

void note_end_tokens(NoteFiles& files, const NoteFiles& own, int64_t trained) {
  const ReadNote read = notes_in(files);
  const std::vector<int64_t> before = configured_ids(read);
  const bool is_replaced = !has_same_tokenizer(files, own);
  std::vector<int64_t> ids = before;
  if (is_replaced) {
    const Vocabulary there(notes_in(own)), here(read);
    std::erase_if(ids, [&](int64_t id) { return there.token_of(id) != here.token_of(id); });
  }
  const auto is_named = [&](int64_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  std::optional<int64_t> eos;
  if (trained >= 0 ? !is_named(trained) : is_replaced || ids.empty())
    eos = trained >= 0 ? std::optional(trained) : eos_of(read);
  const bool is_other = is_replaced || ids.empty() || (eos && eos_of(notes_in(own)) != eos);
  if (eos && is_other && !is_named(*eos)) ids.push_back(*eos);
  if (ids != before) set_ids(files, ids);
}

int64_t separator(const std::filesystem::path& model, const std::string& named, Tokenizer& tokenizer) {
  const std::string token = named.empty() ? named_token(notes_in(model)) : named;
  if (!token.empty()) {
    if (const auto id = tokenizer.id_of(token)) return *id;
    throw Error(ErrorCode::input, tokenizer.file().string(),
                "has no token '" + text::excerpt(token) + "'" +
                    (named.empty() ? ", which the model's files name as its end" : ""),
                "set the token between documents with --end-token TOKEN");
  }
  for (const int64_t id : configured_ids(notes_in(model)))
    if (id >= 0 && id < tokenizer.vocabulary()) return id;
  throw Error(
      ErrorCode::input, model.string(),
      "its end token is unknown: tokenizer_config.json, special_tokens_map.json, generation_config.json "
      "and config.json name no token of the vocabulary",
      "set the token between documents with --end-token TOKEN");
}

}  // namespace heddle
