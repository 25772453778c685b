// Adds tokenizer files and the chat template to a model that is exported.
#include "lib/run/model/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>

#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/run/model/find_model.h"

namespace heddle {
namespace {

constexpr const char* kByteTokenizer = "{\"type\": \"bytes\"}\n";

constexpr std::array<std::string_view, 11> kTokenizerNotes = {"tokenizer.json",
                                                              "tokenizer_config.json",
                                                              "special_tokens_map.json",
                                                              "added_tokens.json",
                                                              "vocab.json",
                                                              "vocab.txt",
                                                              "merges.txt",
                                                              kChatTemplate,
                                                              "tokenizer.model",
                                                              "chat_template.json",
                                                              kTokenizerNote};

bool is_named_template(const std::string& name) {
  return name.starts_with(std::string(checkpoint::kNamedTemplates) + "/");
}

bool is_of_tokenizer(const std::string& name) {
  return is_named_template(name) ||
         std::find(kTokenizerNotes.begin(), kTokenizerNotes.end(), name) != kTokenizerNotes.end();
}

}  // namespace

void add_byte_tokenizer(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                        std::vector<std::string>& warnings) {
  const auto& files = model.files;
  for (const char* own : {"tokenizer.json", "tokenizer.model"}) {
    if (!files.contains(own)) continue;
    warnings.push_back("the dataset's tokens are bytes of text, but the model has a " + std::string(own) +
                       ": tokenize the text with heddle data --tokenizer " + directory.string());
    return;
  }
  model.files[kTokenizerNote] = kByteTokenizer;
}

void add_tokenizer(checkpoint::HfOrigin& origin, const std::filesystem::path& model,
                   const std::filesystem::path& directory, std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (directory.empty() || std::filesystem::equivalent(model, directory, ignored)) return;
  std::map<std::string, std::string> made = checkpoint::kept_origin(directory).files, own;
  std::erase_if(made, [](const auto& file) { return !is_of_tokenizer(file.first); });
  for (const auto& [name, bytes] : origin.files)
    if (is_of_tokenizer(name)) own.emplace(name, bytes);
  if (made.empty() || made == own) return;
  if (!own.empty())
    warnings.push_back("exports contain the tokenizer of the data, " + directory.string() +
                       ", instead of the model's own");
  std::erase_if(origin.files, [](const auto& file) { return is_of_tokenizer(file.first); });
  origin.files.merge(made);
}

void add_chat_template(checkpoint::HfOrigin& origin, const std::string& chat_template,
                       const std::string& where) {
  std::string text = chat_template;
  if (chat_template.find("{%") == std::string::npos && chat_template.find("{{") == std::string::npos) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(chat_template, ignored))
      throw Error(ErrorCode::input, where,
                  "chat_template is neither a template nor an existing file: " + chat_template);
    checkpoint::refuse_large_note(chat_template);
    std::ifstream in(chat_template, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (const auto read = checkpoint::hf_json_if_valid(text); read && read->is_object()) {
      const auto key = read->find("chat_template");
      if (key == read->end() || !key->is_string())
        throw Error(ErrorCode::input, chat_template, "has no string under the key chat_template");
      text = key->get<std::string>();
    }
  }
  std::erase_if(origin.files, [](const auto& file) { return is_named_template(file.first); });
  origin.files[kChatTemplate] = text;
}

}  // namespace heddle
