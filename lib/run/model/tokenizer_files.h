// What exports say of the tokens that a model learns: its tokenizer, or that they are bytes of text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/checkpoint/huggingface/hf_origin.h"

namespace heddle {

// Exports of a model that learns bytes of text say so, for `heddle generate`; a model with a tokenizer gets a
// warning instead.
void add_byte_tokenizer(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                        std::vector<std::string>& warnings);

// Exports have the tokenizer of `directory`, which made the tokens, in place of the model's own files.
// `model`: the directory of the model's own; empty: it has none. Throws Error{input} for a file that cannot
// be read.
void add_tokenizer(checkpoint::HfOrigin& origin, const std::filesystem::path& model,
                   const std::filesystem::path& directory, std::vector<std::string>& warnings);

// Exports have the chat template that the data set names (a template, its file, or a JSON file with a key
// chat_template) and no named ones beside it, so that an answer is asked for as the model was trained. Throws
// Error{input} for a file that cannot be read, or holds none.
void add_chat_template(checkpoint::HfOrigin& origin, const std::string& given, const std::string& where);
inline constexpr const char* kChatTemplate = "chat_template.jinja";

}  // namespace heddle
