// Data set of Megatron's token files, a single file or a blend.
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
  double weight = 0;             // relative to the sum of all weights; 0: no weights are given
};

struct BlendConfig {
  std::vector<BlendFile> files;
  Part part = Part::train;
  int64_t sequence = 2048;  // tokens per row
  std::string split;        // "900,50,50"; empty: all documents belong to this split
  std::string split_where;  // for messages
  uint32_t seed = 1234;
  std::optional<int64_t> samples;  // requested number; empty: one epoch
};

// Throws Error{input} for files that cannot be read or have no sample, and Error{config} for a split without
// documents and for weights without a number of samples.
std::unique_ptr<IDataset> open_blend(const BlendConfig& config, int64_t vocabulary);

}  // namespace heddle::megatron

namespace heddle {

// Returns the offer of Megatron's blends, like that of a plugin.
const OfferedDataset& blend_files();

}  // namespace heddle
