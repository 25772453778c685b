// Sends requests to the process that runs the library tokenizers.
#include "lib/data/tokenizer/tokenizer.h"

#include <cstring>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/note_size.h"

namespace heddle {
namespace {

using nlohmann::json;

std::filesystem::path tokenizer_json(const std::filesystem::path& directory) {
  std::error_code ignored;
  std::filesystem::path file = directory / "tokenizer.json";
  for (const char* read : {"tokenizer.json", "tokenizer_config.json"})
    checkpoint::refuse_large_note(directory / read);
  if (std::filesystem::is_regular_file(file, ignored)) return file;
  const bool there = std::filesystem::is_directory(directory, ignored);
  throw Error(ErrorCode::input, directory.string(),
              there ? "contains no tokenizer.json" : "is not a directory",
              there ? "write one with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
                    : "use the directory of a Hugging Face model with its tokenizer.json");
}

Error missing_package(const json& words) {
  return Error(
      ErrorCode::input, PythonProcess::python(),
      "Python " + words.value("python", "") + " has no package tokenizers: " + words.value("missing", ""),
      "python3 -m pip install tokenizers; or set HEDDLE_PYTHON to a Python that has it");
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& directory)
    : file_(tokenizer_json(directory)), process_("heddle_tokenizer.py", file_.string()) {
  const json words = answer().words;
  vocabulary_ = words.at("vocabulary").get<int64_t>();
  library_ = words.at("library").get<std::string>();
}

Message Tokenizer::answer() {
  Message message = process_.receive();
  if (message.words.contains("missing")) throw missing_package(message.words);
  if (message.words.contains("error"))
    throw Error(ErrorCode::input, file_.string(),
                "the library tokenizers" + (library_.empty() ? "" : " " + library_) +
                    " fails: " + message.words.at("error").get<std::string>());
  return message;
}

std::optional<int64_t> Tokenizer::id_of(const std::string& token) {
  process_.send({{"do", "id"}, {"token", token}});
  const int64_t id = answer().words.at("id").get<int64_t>();
  return id < 0 ? std::nullopt : std::optional(id);
}

void Tokenizer::begin_encoding(std::span<const std::string> texts) {
  json lengths = json::array();
  std::string joined;
  for (const std::string& text : texts) {
    lengths.push_back(text.size());
    joined += text;
  }
  process_.send({{"do", "encode"}, {"lengths", std::move(lengths)}}, joined);
}

std::vector<std::vector<uint32_t>> Tokenizer::end_encoding() {
  const Message message = answer();
  std::vector<std::vector<uint32_t>> out;
  const char* from = message.payload.data();
  for (const json& length : message.words.at("lengths")) {
    std::vector<uint32_t>& ids = out.emplace_back(length.get<size_t>());
    if (!ids.empty()) std::memcpy(ids.data(), from, ids.size() * sizeof(uint32_t));
    from += ids.size() * sizeof(uint32_t);
  }
  return out;
}

std::vector<std::vector<uint32_t>> Tokenizer::encode(std::span<const std::string> texts) {
  begin_encoding(texts);
  return end_encoding();
}

std::vector<int64_t> Tokenizer::chat(const std::string& message, const std::string& chat_template) {
  process_.send({{"do", "chat"},
                 {"messages", {{{"role", "user"}, {"content", message}}}},
                 {"template", chat_template}});
  const Message answered = answer();
  if (answered.words.contains("refused"))
    throw Error(
        ErrorCode::input, file_.string(), answered.words.at("refused").get<std::string>(),
        "add a chat template: a key of tokenizer_config.json, or chat_template.jinja next to it. Without "
        "--chat, the prompt is continued unchanged");
  std::vector<uint32_t> ids(answered.payload.size() / sizeof(uint32_t));
  if (!ids.empty()) std::memcpy(ids.data(), answered.payload.data(), answered.payload.size());
  return {ids.begin(), ids.end()};
}

std::string Tokenizer::decode(std::span<const int64_t> ids) {
  return decoded(ids, true);
}

std::string Tokenizer::decode_all(std::span<const int64_t> ids) {
  return decoded(ids, false);
}

std::string Tokenizer::decoded(std::span<const int64_t> ids, bool skips_special) {
  const std::vector<uint32_t> narrow(ids.begin(), ids.end());
  process_.send({{"do", "decode"}, {"skip", skips_special}},
                {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(uint32_t)});
  return answer().payload;
}

std::string Tokenizer::step(int64_t id) {
  process_.send({{"do", "step"}, {"id", id}});
  return answer().payload;
}

}  // namespace heddle
