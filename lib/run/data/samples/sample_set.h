// The data set of a file of prepared samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "lib/run/data/samples/sample_file.h"

namespace heddle {

// inputs: what the samples were made of; no output of the run may replace it.
// pack_size: as DataFacts; samples that their set fills to one length (HellaSwag) take this length in a pack.
// Throws Error{input} for a file that does not open or has no samples.
std::unique_ptr<IDataset> open_samples(const std::filesystem::path& file, std::vector<DataInput> inputs,
                                       int64_t pack_size);

// What a file's description says.
struct SampleDescription {
  std::string name;       // of the data set
  std::string tokenizer;  // the directory of the tokenizer
  std::string tokenizer_digest;
  int64_t filled = 0;  // the length to which the set fills all rows; 0: it does not
};
SampleDescription read_description(const SampleFile& file);

}  // namespace heddle
