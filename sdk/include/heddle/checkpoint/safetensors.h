// Reads safetensors files through memory mapping, and checks their headers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// An entry of the header of a safetensors file.
struct StoredTensor {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte offsets from the end of the header
};

// A safetensors file. Throws Error{input} for a truncated file, a bad header, and overlapping or wrong
// offsets, and Error{io} if the disk fails.
class HEDDLE_API SafetensorsFile {
 public:
  // if_damaged: replaces the default hint for a damaged file.
  explicit SafetensorsFile(const std::filesystem::path& file, const std::string& if_damaged = "");
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  const std::map<std::string, StoredTensor>& tensors() const;
  // Copies the box [offset, offset + out.sizes()) of a tensor into `out`, converting the dtype.
  void read(const std::string& name, std::span<const int64_t> offset, at::Tensor out) const;
  // Returns the bytes of an existing tensor in the mapped file, valid as long as this object.
  std::string_view bytes(const std::string& name) const;
  // Reads bytes of an existing tensor from its byte `from` on, without the mapping, which is faster for long
  // ranges. Throws Error{io} if the disk fails.
  void read_bytes(const std::string& name, uint64_t from, std::span<char> out) const;
  // Returns the entries of the header's __metadata__.
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The weights of a Hugging Face directory: model.safetensors, or the files of model.safetensors.index.json.
class HEDDLE_API HfWeights {
 public:
  explicit HfWeights(const std::filesystem::path& directory);
  bool has(const std::string& name) const;
  const StoredTensor& at(const std::string& name) const;
  void read(const std::string& name, std::span<const int64_t> offset, at::Tensor out) const;
  std::vector<std::string> names() const;
  // Returns the bytes of an existing tensor in the mapped file, valid as long as this object.
  std::string_view bytes(const std::string& name) const;
  // Returns the name of the file that contains the tensor.
  const std::string& file(const std::string& name) const;
  // Returns the text of the index file; empty for a single weights file.
  const std::string& index() const { return index_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, size_t> file_of_;
  std::string index_;
};

}  // namespace heddle
