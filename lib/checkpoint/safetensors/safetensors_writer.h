// Writing one safetensors file a tensor at a time: to a temporary name, synced, then renamed.
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

namespace heddle::checkpoint {

struct TensorToWrite {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

// The first bytes of a file with these tensors, adjacent: the length, and the JSON in their
// order, padded so that data begin at a multiple of `multiple` bytes (Hugging Face's files: 8). `file` is for
// the message of Error{internal}, thrown for a dtype that the format lacks; `metadata`: entries of
// __metadata__ besides the format.
std::string header_of(std::span<const TensorToWrite> tensors, const std::string& file,
                      const std::map<std::string, std::string>& metadata = {}, size_t multiple = 8);

// Every failure (full disk, no permission) throws Error{io} naming the file; the old file stays and the
// temporary one is removed.
class HEDDLE_API SafetensorsWriter {
 public:
  // All tensors are declared first, because the header precedes the data. `metadata`: as above.
  SafetensorsWriter(const std::filesystem::path& file, std::span<const TensorToWrite> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();  // without finish(): the temporary file is removed
  SafetensorsWriter(SafetensorsWriter&&) noexcept;

  // The next tensor, in the order declared; on any device, converted to the declared dtype.
  void append(const at::Tensor& tensor);
  // Appends a tensor and returns the checksum of each range of this many bytes, computed while they are in
  // the processor's caches.
  std::vector<std::string> append_summed(const at::Tensor& tensor, uint64_t stretch);
  // Syncs and renames.
  void finish();

 private:
  at::Tensor next(const at::Tensor& tensor);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a whole text file the same way.
HEDDLE_API void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace heddle::checkpoint
