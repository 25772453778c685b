// Layers as the files of a model contain them, where one layer may hold several linear layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/nn/linear.h"

namespace heddle::lora {

// Outputs [begin, begin + count) of a linear layer are outputs first, first + 1, ... of the layer in files.
struct Rows {
  int64_t begin = 0, count = 0, first = 0;
};

// Layer of the files that contains a linear layer's weight: unchanged, renamed, transposed to [in, out], or
// joined with the weights of other layers. AutoModel and PEFT see this layer.
struct FileLayer {
  std::string path;        // path of transformers' module
  int64_t outputs = 0;     // of the whole layer
  std::vector<Rows> rows;  // of the linear layer, in order
  bool is_transposed = false;

  // Returns whether a linear layer with `count` outputs is the whole layer.
  bool is_whole(int64_t count) const { return outputs == count && rows.size() == 1; }
};

// Returns the file layer of the linear layer at `path`. spec null: the files contain the layers unchanged.
FileLayer file_layer(const ModelSpec* spec, const std::string& path, const Linear& layer);

// Returns "a.b." for "a.b.c".
std::string block_of(const std::string& path);

// Returns where a parameter with one row per output is in the tensor of the whole layer: [outputs, columns],
// or [outputs] if columns is 0.
StoredParts rows_within(const FileLayer& layer, const std::string& tensor, int64_t columns);

}  // namespace heddle::lora
