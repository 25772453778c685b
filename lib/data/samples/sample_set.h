// The data set of a file of prepared samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "lib/data/samples/sample_file.h"

namespace heddle {

// inputs: what the samples were made of; no output of the run may replace it.
// pack_size: as DataFacts; samples that their set fills to one length (HellaSwag) take this length in a pack.
// vocabulary: of the model; 0: not known. verify() then throws Error{input} naming the first token beyond it.
// has_own_tokenizer: the samples were made with the model's own tokenizer, for the hint.
// Throws Error{input} for a file that does not open or has no samples.
std::unique_ptr<IDataset> open_samples(const std::filesystem::path& file, std::vector<DataInput> inputs,
                                       int64_t pack_size, int64_t vocabulary = 0,
                                       bool has_own_tokenizer = false);

inline constexpr const char* kTextsSetting = "dataset.texts";                 // of a set's settings()
inline constexpr const char* kTextsInput = "a file of texts of the run";      // DataInput::what
inline constexpr const char* kPreparedInput = "prepared samples of the run";  // DataInput::what

// What a file's description says.
struct SampleDescription {
  std::string name;       // of the data set
  std::string tokenizer;  // the directory of the tokenizer
  std::string tokenizer_digest;
  std::string texts;   // a checksum of the files that it was made of; empty: not known
  int64_t filled = 0;  // the length to which the set fills all rows; 0: it does not
};
SampleDescription read_description(const SampleFile& file);

}  // namespace heddle
