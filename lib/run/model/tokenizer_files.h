// Adds tokenizer files and the chat template to a model that is exported.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lib/checkpoint/huggingface/hf_origin.h"

namespace heddle {

// Marks exports of a model that is trained on bytes of text, for `heddle generate`. If the model has a
// tokenizer, adds a warning instead.
void add_byte_tokenizer(checkpoint::HfOrigin& model, const std::filesystem::path& directory,
                        std::vector<std::string>& warnings);

// Replaces the model's own tokenizer files in exports by those of `directory`, which made the tokens.
// `model`: directory of the model's own files; empty: none. Throws Error{input} for a file that cannot be
// read.
void add_tokenizer(checkpoint::HfOrigin& origin, const std::filesystem::path& model,
                   const std::filesystem::path& directory, std::vector<std::string>& warnings);

// Adds to exports the chat template that the data set names (a template, its file, or a JSON file with the
// key chat_template) and removes named templates, so that prompts are rendered as in training. Throws
// Error{input} for a file that cannot be read or contains no template.
void add_chat_template(checkpoint::HfOrigin& origin, const std::string& chat_template,
                       const std::string& where);
inline constexpr const char* kChatTemplate = "chat_template.jinja";

}  // namespace heddle
