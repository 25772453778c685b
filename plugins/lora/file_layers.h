// Layers as the files of a model have them, in which several linear layers may be one.
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

// The layer of the files that has a linear layer's weight: as it is, with another name, as [in, out], or with
// the weights of other layers. That is the layer that AutoModel and PEFT see.
struct FileLayer {
  std::string path;        // of transformers' module
  int64_t outputs = 0;     // of all of it
  std::vector<Rows> rows;  // of the linear layer, in order
  bool is_transposed = false;

  // The linear layer with so many outputs is all of it.
  bool is_whole(int64_t count) const { return outputs == count && rows.size() == 1; }
};

// Of the linear layer at `path`; spec null: files have layers as they are.
FileLayer file_layer(const ModelSpec* spec, const std::string& path, const Linear& layer);

// "a.b." of "a.b.c".
std::string block_of(const std::string& path);

// Where a parameter with a row for each output is in the tensor of all of them, [outputs, columns], or
// [outputs] where columns is 0.
StoredParts rows_within(const FileLayer& layer, const std::string& tensor, int64_t columns);

}  // namespace heddle::lora
