// Data set of token files: its keys, and its offer, which is like that of a plugin.
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
  std::vector<std::string> patterns;       // shell patterns
  std::vector<std::string> lengths;        // files with sample lengths; empty: samples of equal length
  std::optional<int64_t> sequence_length;  // tokens per row
  Shuffle shuffle_files = Shuffle::off;
  std::optional<TokenType> bare;        // token type of files without a header
  std::optional<int64_t> document_end;  // token that ends a document; attention does not cross it
  std::optional<int64_t> most_samples;  // maximum number of samples; empty: all
  std::vector<std::string> not_built;   // "align_to_bos: why"
};

namespace recipe {

// Records errors in `found`; keys with errors keep their defaults in the result.
TokenFilesSection read_token_files(const Node& section, SectionErrors& found);
// Throws Error{config} at the invalid keys.
TokenFilesSection read_token_files(const Node& section);
std::vector<FieldInfo> token_file_fields();

}  // namespace recipe

// Returns the offer of token files of nanoGPT, AutoModel and Megatron, with or without sample lengths.
const OfferedDataset& token_files();

// Throws MissingData if a pattern of file_pattern or lengths matches no file. Ignores other keys.
void look_for_token_files(const Node& section);

}  // namespace heddle
