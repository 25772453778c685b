// Reads and writes tokenizer notes: JSON objects with heddle's mark.
#include "lib/data/tokens/token_note.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/nesting.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWriter = "heddle data";

// Returns an object that heddle wrote; else null.
nlohmann::json read_json_note(const fs::path& note) {
  std::error_code ignored;
  if (!fs::is_regular_file(note, ignored) || fs::file_size(note, ignored) > 1 << 16) return {};
  std::ifstream in(note, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (text::nests_deeper(bytes, text::kDeepest)) return {};
  const nlohmann::json parsed = nlohmann::json::parse(bytes, nullptr, false);
  return parsed.is_object() && parsed.value("written_by", nlohmann::json()) == kWriter ? parsed
                                                                                       : nlohmann::json();
}

}  // namespace

fs::path note_beside(const fs::path& file) {
  fs::path note = file;
  note += ".tokens.json";
  return note;
}

std::string tokenizer_content(std::string_view tokenizer_json) {
  const auto read = checkpoint::hf_json_if_valid(tokenizer_json);
  if (!read || !read->is_object()) return checkpoint::checksum(tokenizer_json);
  nlohmann::json parsed = *read;  // in the order of the keys
  for (const char* key : {"padding", "truncation"}) parsed.erase(key);
  return checkpoint::checksum(parsed.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void write_note(const fs::path& file, const TokenNote& note) {
  const nlohmann::ordered_json out{{"written_by", kWriter},
                                   {"tokenizer",
                                    {{"name", note.name},
                                     {"digest", note.digest},
                                     {"content", note.content},
                                     {"vocabulary", note.vocabulary},
                                     {"end_token", note.end_token}}},
                                   {"tokens", note.tokens}};
  checkpoint::write_text(note_beside(file),
                         out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

bool is_note(const fs::path& note) {
  return read_json_note(note).is_object();
}

void remove_note(const fs::path& file) {
  std::error_code ignored;
  if (read_json_note(note_beside(file)).is_object()) fs::remove(note_beside(file), ignored);
}

std::optional<TokenNote> read_note(const fs::path& file, const std::string& tokens) {
  const nlohmann::json parsed = read_json_note(note_beside(file));
  if (!parsed.is_object()) return std::nullopt;
  try {
    const nlohmann::json& tokenizer = parsed.at("tokenizer");
    TokenNote note{tokenizer.at("name").get<std::string>(),    tokenizer.at("digest").get<std::string>(),
                   tokenizer.at("content").get<std::string>(), tokenizer.at("vocabulary").get<int64_t>(),
                   tokenizer.at("end_token").get<int64_t>(),   parsed.at("tokens").get<std::string>()};
    if (note.tokens != tokens) return std::nullopt;
    return note;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace heddle
