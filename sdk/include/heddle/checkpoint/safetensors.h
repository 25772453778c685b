// Reads safetensors files by mapping them; headers are checked.
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

struct StoredTensor {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

// One file. Throws Error{input} on a cut file, a bad header, overlapping or wrong offsets, Error{io} where
// the disk fails.
class HEDDLE_API SafetensorsFile {
 public:
  // `if_damaged` replaces the default hint for a damaged file.
  explicit SafetensorsFile(const std::filesystem::path& file, const std::string& if_damaged = "");
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  const std::map<std::string, StoredTensor>& tensors() const;
  // Copies the box [offset, offset + out.sizes()) of a tensor into `out`, converting the dtype.
  void read(const std::string& name, std::span<const int64_t> offset, at::Tensor out) const;
  // The bytes of an existing tensor in the mapped file; valid as long as this object.
  std::string_view bytes(const std::string& name) const;
  // Reads bytes of an existing tensor from its byte `from` on, without the mapping: a failing disk is an
  // Error{io}, and long ranges are faster than page by page.
  void read_bytes(const std::string& name, uint64_t from, std::span<char> out) const;
  // The texts of the header's __metadata__.
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
  // The bytes of an existing tensor, mapped as long as this object exists.
  std::string_view bytes(const std::string& name) const;
  // The name of the file that holds it.
  const std::string& file(const std::string& name) const;
  // The text of the index; empty for a single file.
  const std::string& index() const { return index_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, size_t> file_of_;
  std::string index_;
};

}  // namespace heddle
