// Writing safetensors files: the header first, then each tensor's bytes.
#include "lib/checkpoint/safetensors/safetensors_writer.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/safetensors/dtype_names.h"
#include "lib/checkpoint/safetensors/file_writer.h"

namespace heddle::checkpoint {
namespace {

constexpr size_t kPage = 4096;  // bytes

}  // namespace

// The format's own metadata says which framework wrote it; Hugging Face's loader asks for it. Built tensor by
// tensor: each insertion into an ordered object searches all its keys.
std::string header_of(std::span<const TensorToWrite> tensors, const std::string& file,
                      const std::map<std::string, std::string>& metadata, size_t multiple) {
  nlohmann::ordered_json own{{"format", "pt"}};
  for (const auto& [key, value] : metadata) own[key] = value;
  std::string header = R"({"__metadata__":)" + own.dump();
  uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::string dtype = name_of_dtype(tensor.dtype);
    if (dtype.empty())
      throw Error(
          ErrorCode::internal, file,
          "tensor " + text::quoted(tensor.name) + ": safetensors has no dtype " + toString(tensor.dtype));
    const nlohmann::ordered_json entry{
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes()}}};
    header += "," + nlohmann::json(tensor.name).dump() + ":" + entry.dump();
    at += tensor.bytes();
  }
  header += "}";
  header.append(multiple - 1 - (header.size() + sizeof(uint64_t) + multiple - 1) % multiple, ' ');
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

uint64_t TensorToWrite::bytes() const {
  return static_cast<uint64_t>(Box{shape, shape}.numel()) * c10::elementSize(dtype);
}

struct SafetensorsWriter::Impl {
  Impl(const std::filesystem::path& path, std::span<const TensorToWrite> declared)
      : tensors(declared.begin(), declared.end()), name(path.string()), file(path) {}
  std::vector<TensorToWrite> tensors;
  std::string name;
  FileWriter file;
  size_t next = 0;
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file,
                                     std::span<const TensorToWrite> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : impl_(std::make_unique<Impl>(file, tensors)) {
  // Page-aligned tensors are read and written in larger parts of the page cache.
  const std::string header = header_of(tensors, impl_->name, metadata, kPage);
  uint64_t bytes = header.size();
  for (const TensorToWrite& tensor : tensors) bytes += tensor.bytes();
  impl_->file.reserve(bytes);
  impl_->file.write(header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

// The next tensor in the form of the file; a copy only if device, layout or dtype differ.
at::Tensor SafetensorsWriter::next(const at::Tensor& tensor) {
  if (impl_->next == impl_->tensors.size())
    throw Error(ErrorCode::internal, impl_->name, "one tensor more than were declared");
  const TensorToWrite& declared = impl_->tensors[impl_->next++];
  if (tensor.sizes() != at::IntArrayRef(declared.shape))
    throw Error(ErrorCode::internal, impl_->name,
                "tensor " + text::quoted(declared.name) + " was declared as " + written(declared.shape) +
                    ", got " + written(tensor.sizes()));
  return tensor.detach().to(at::kCPU, declared.dtype).contiguous();
}

void SafetensorsWriter::append(const at::Tensor& tensor) {
  const at::Tensor plain = next(tensor);
  impl_->file.write(plain.const_data_ptr(), plain.nbytes());
}

std::vector<std::string> SafetensorsWriter::append_summed(const at::Tensor& tensor, uint64_t stretch) {
  const at::Tensor plain = next(tensor);
  const std::string_view all(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  std::vector<std::string> sums;
  for (size_t begin = 0; begin < all.size(); begin += stretch) {
    const std::string_view one = all.substr(begin, stretch);
    sums.push_back(checksum(one));
    impl_->file.write(one.data(), one.size());
  }
  return sums;
}

void SafetensorsWriter::finish() {
  if (impl_->next != impl_->tensors.size())
    throw Error(ErrorCode::internal, impl_->name, "a declared tensor was not written");
  impl_->file.finish();
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  FileWriter writer(file);
  writer.write(text.data(), text.size());
  writer.finish();
}

}  // namespace heddle::checkpoint
