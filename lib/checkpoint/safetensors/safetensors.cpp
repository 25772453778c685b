// Reads boxes of tensors from a mapped safetensors file.
#include "heddle/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "lib/checkpoint/safetensors/safetensors_header.h"

namespace heddle {
namespace {

// A whole file, open and mapped for reading; the mapping lives as long as this object.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& file) {
    refuse_irregular(file, ErrorCode::input);
    descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) refuse(file);
    size_ = static_cast<size_t>(status.st_size);
    if (size_ != 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (data_ == MAP_FAILED) refuse(file);
  }
  ~Mapping() {
    if (size_ != 0) ::munmap(data_, size_);
    ::close(descriptor_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }
  int descriptor() const { return descriptor_; }

 private:
  [[noreturn]] void refuse(const std::filesystem::path& file) {
    const std::string reason = std::strerror(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Error(ErrorCode::input, file.string(), "cannot be read: " + reason,
                "is the file there, and may it be read? copy it again, or resume from another");
  }

  int descriptor_ = -1;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

struct SafetensorsFile::Impl {
  Impl(const std::filesystem::path& path, const std::string& if_damaged)
      : file(path.string()), mapping(path), header(read(if_damaged)) {}

  checkpoint::Header read(const std::string& if_damaged) const try {
    return checkpoint::read_header(mapping.bytes(), file);
  } catch (const Error& error) {
    if (if_damaged.empty()) throw;
    throw Error(error.code(), error.where(), error.message(), if_damaged);
  }

  std::string file;
  Mapping mapping;
  checkpoint::Header header;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file, const std::string& if_damaged)
    : impl_(std::make_unique<Impl>(file, if_damaged)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

const std::map<std::string, StoredTensor>& SafetensorsFile::tensors() const {
  return impl_->header.tensors;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

std::string_view SafetensorsFile::bytes(const std::string& name) const {
  const StoredTensor& stored = tensors().at(name);
  return impl_->mapping.bytes().substr(impl_->header.data + stored.begin, stored.end - stored.begin);
}

void SafetensorsFile::read_bytes(const std::string& name, uint64_t from, std::span<char> out) const {
  uint64_t at = impl_->header.data + tensors().at(name).begin + from;
  while (!out.empty()) {
    const ssize_t got = ::pread(impl_->mapping.descriptor(), out.data(), out.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error(ErrorCode::io, impl_->file,
                  got == 0
                      ? "ends before byte " + std::to_string(at + out.size()) + ": it was cut while in use"
                      : std::string("cannot be read: ") + std::strerror(errno),
                  "see what the system says of the disk, and resume from another copy");
    at += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

void SafetensorsFile::read(const std::string& name, std::span<const int64_t> offset, at::Tensor out) const {
  const auto found = tensors().find(name);
  if (found == tensors().end())
    throw Error(ErrorCode::input, impl_->file, "holds no tensor " + text::quoted(name));
  const StoredTensor& stored = found->second;
  const checkpoint::Box box{{offset.begin(), offset.end()}, out.sizes().vec()};
  if (!checkpoint::fits(box, stored.shape))
    throw Error(ErrorCode::input, impl_->file,
                "tensor " + text::quoted(name) + " has the shape " + checkpoint::written(stored.shape) +
                    "; asked for " + checkpoint::written(box.size) + " at " +
                    checkpoint::written(box.offset));
  if (out.numel() == 0) return;
  out = out.detach();
  const bool direct = out.is_cpu() && out.is_contiguous() && out.scalar_type() == stored.dtype;
  at::Tensor target = direct ? out : at::empty(out.sizes(), at::TensorOptions(stored.dtype));
  const size_t item = target.element_size();
  const char* source = impl_->mapping.bytes().data() + impl_->header.data + stored.begin;
  char* to = static_cast<char*>(target.mutable_data_ptr());
  checkpoint::for_each_run(box, stored.shape, [&](int64_t first, int64_t count) {
    std::memcpy(to, source + static_cast<size_t>(first) * item, static_cast<size_t>(count) * item);
    to += static_cast<size_t>(count) * item;
  });
  if (!direct) out.copy_(target);
}

}  // namespace heddle
