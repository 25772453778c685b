// The data set of Megatron's token files, one or a blend of several.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/data/dataset.h"
#include "heddle/plugin/dataset.h"

namespace heddle::megatron {

enum class Part { train, validation, test };

// One file of a blend: NAME.bin with NAME.idx.
struct BlendFile {
  std::filesystem::path prefix;  // NAME
  double weight = 0;             // of all that are given; 0: none is
};

struct BlendConfig {
  std::vector<BlendFile> files;
  Part part = Part::train;
  int64_t sequence = 2048;  // tokens of a row
  std::string split;        // "900,50,50"; empty: all documents are of this part
  std::string split_where;  // for messages
  uint32_t seed = 1234;
  std::optional<int64_t> samples;  // asked for; empty: one epoch
};

// Throws Error{input} for files that cannot be read or have no sample, Error{config} for a split without
// documents, and for weights without a number of samples.
std::unique_ptr<IDataset> open_blend(const BlendConfig& config, int64_t vocabulary);

}  // namespace heddle::megatron

namespace heddle {

// The data set of Megatron's blends, an offer like that of a plugin.
const OfferedDataset& blend_files();

}  // namespace heddle
