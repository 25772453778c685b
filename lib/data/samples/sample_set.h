// Data set of a file of prepared samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "lib/data/samples/sample_file.h"

namespace heddle {

// inputs: files that the samples were made from, which no output of the run may replace.
// pack_size: as in DataFacts; samples that their set pads to one length (HellaSwag) get this length in a
// pack.
// vocabulary: the model's vocabulary size; 0: unknown. verify() throws Error{input} for the first token
// beyond it.
// has_own_tokenizer: the samples were made with the model's own tokenizer, for the hint.
// Throws Error{input} for a file that cannot be opened or has no samples.
std::unique_ptr<IDataset> open_samples(const std::filesystem::path& file, std::vector<DataInput> inputs,
                                       int64_t pack_size, int64_t vocabulary = 0,
                                       bool has_own_tokenizer = false);

inline constexpr const char* kTextsSetting = "dataset.texts";                 // key in the set's settings()
inline constexpr const char* kTextsInput = "a file of texts of the run";      // DataInput::description
inline constexpr const char* kPreparedInput = "prepared samples of the run";  // DataInput::description

// Description in a sample file.
struct SampleDescription {
  std::string name;       // of the data set
  std::string tokenizer;  // the directory of the tokenizer
  std::string tokenizer_digest;
  std::string texts;   // checksum of the source files; empty: unknown
  int64_t filled = 0;  // length to which the set pads all rows; 0: it does not
};
SampleDescription read_description(const SampleFile& file);

}  // namespace heddle
