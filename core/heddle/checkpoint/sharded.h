// Tensors that the ranks hold in boxes, saved by all ranks at once and read again by any other set of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

// This rank's box of a named tensor: along dim d it holds [offset[d], offset[d] + tensor.size(d)). A rank may
// hold several boxes of one name, and several ranks the same box.
struct Part {
  std::string name;
  at::Tensor tensor;           // on any device
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> offset;
};

// Writes DIRECTORY/shard-RRRRR-WORD-00001-of-00001.safetensors on each rank that has something to write (of
// replicas of a box, the lowest rank writes it) and DIRECTORY/manifest.json on rank 0. Called by every rank;
// `key` is used once in a run. Every failure is thrown on every rank: Error{io}, and Error{internal} where
// the boxes do not make a tensor whole.
HEDDLE_API void write_sharded(const std::filesystem::path& directory, const std::string& word,
                              std::span<const Part> parts, Rendezvous& meeting, const std::string& key);

// Reads boxes of any layout out of such a directory. Files are mapped when they are first needed, and only
// what a box overlaps is read, against its checksums. Each rank has its own. Throws Error{input} naming the
// file, and the tensor where one is at fault.
class HEDDLE_API ShardedReader {
 public:
  explicit ShardedReader(std::filesystem::path directory);
  bool has(const std::string& name) const { return manifest_.tensors.count(name) != 0; }
  const Manifest& manifest() const { return manifest_; }
  // Fills part.tensor, converting the dtype.
  void read(const Part& part);

 private:
  struct Checked {  // of one saved box: which stretches agreed with their checksums
    std::vector<char> stretches;
  };
  const SafetensorsFile& file_of(const SavedTensor& tensor, const SavedBox& saved, const std::string& name);
  void check(const SavedTensor& tensor, const SavedBox& saved, const Box& inside, const std::string& name);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<const SavedBox*, Checked> checked_;
};

}  // namespace heddle::checkpoint
