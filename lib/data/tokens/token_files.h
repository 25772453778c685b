// The data set of token files: its keys, and the offer of it, which is like that of a plugin.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/schema.h"
#include "heddle/plugin/dataset.h"
#include "lib/data/sample_order.h"
#include "lib/data/tokens/token_file.h"

namespace heddle {

inline constexpr const char* kTokenFiles = "NanogptDataset";  // the data set of a section without _target_

inline constexpr const char* kMegatronBlend = "MegatronPretraining";

struct TokenFilesSection {
  std::vector<std::string> patterns;  // each as a shell reads it
  std::vector<std::string> lengths;   // of files with the lengths of samples; empty: samples of one length
  std::optional<int64_t> sequence_length;  // of a row
  Shuffle shuffle_files = Shuffle::off;
  std::optional<TokenType> bare;        // the type of files without a header
  std::optional<int64_t> document_end;  // the token after which attention begins anew
  std::optional<int64_t> most_samples;  // the first so many of the files; empty: all
  std::vector<std::string> not_built;   // "align_to_bos: why"
};

namespace recipe {

// What is wrong is in `found`, and left out of what is returned.
TokenFilesSection read_token_files(const Node& section, SectionErrors& found);
// Throws Error{config} at the keys that are wrong.
TokenFilesSection read_token_files(const Node& section);
std::vector<FieldInfo> token_file_fields();

}  // namespace recipe

// Token files of nanoGPT, AutoModel and Megatron, with or without lengths of samples.
const OfferedDataset& token_files();

// Throws MissingData where a pattern of file_pattern or lengths matches no file. Other keys are not looked
// at.
void look_for_token_files(const Node& section);

}  // namespace heddle
