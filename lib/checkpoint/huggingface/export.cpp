// An export in three parts: rank 0 lays out the files, all ranks fill them, rank 0 writes the other files.
#include "lib/checkpoint/huggingface/export.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/stored_view.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/checkpoint/safetensors/rows.h"

namespace heddle::checkpoint {
namespace {

// Opens an existing file for writing. Throws Error{io} naming the file and the reason.
class PlacedFile {
 public:
  explicit PlacedFile(std::filesystem::path file);
  ~PlacedFile();
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;
  void write(std::string_view bytes, uint64_t at);
  void sync();  // what was written survives a crash

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

// Creates the file with this size and these first bytes; the rest is zero. Throws Error{io}.
void lay_out(const std::filesystem::path& file, std::string_view first, uint64_t size) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_on(file, "cannot be created");
  const bool sized = ::ftruncate(descriptor, static_cast<off_t>(size)) == 0;
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  if (!sized) fail_on(file, "cannot be created");
  PlacedFile(file).write(first, 0);
}

PlacedFile::PlacedFile(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_on(file_, "cannot be opened");
}

PlacedFile::~PlacedFile() {
  ::close(descriptor_);
}

void PlacedFile::write(std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const size_t some = std::min(bytes.size(), size_t{1} << 30);
    const ssize_t wrote = ::pwrite(descriptor_, bytes.data(), some, static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_on(file_, "cannot be written");
    bytes.remove_prefix(static_cast<size_t>(wrote));
    at += static_cast<uint64_t>(wrote);
  }
}

void PlacedFile::sync() {
  if (::fsync(descriptor_) != 0) fail_on(file_, "cannot be written");
}

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostAtOnce = uint64_t{64} << 20;  // bytes of a tensor in memory of a rank
constexpr std::chrono::duration<double> kLongest = std::chrono::hours(24 * 365 * 100);  // a clock ends too

void make_directory(const fs::path& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed)
    throw Error(ErrorCode::io, directory.string(), "cannot be created: " + failed.message(),
                "check the path and its permissions");
}

// The rows that this rank writes, file by file.
class Share {
 public:
  Share(const HfExport& what, const HfPlan& plan, const Rendezvous& rendezvous)
      : what_(what), plan_(plan), saved_(what.sharded) {
    if (!what.finer.empty() && fs::exists(what.finer / kManifest)) finer_.emplace(what.finer);
    std::vector<std::vector<TensorToWrite>> tensors;
    for (const HfFile& file : plan.files) tensors.push_back(file.tensors);
    const bool all = what.writers == HfExport::Writers::all;
    if (all || rendezvous.rank() == 0)
      rows_ = deal_rows(tensors, kMostAtOnce, rendezvous.rank(), all ? rendezvous.world_size() : 1);
  }

  bool done() const { return next_ == rows_.size(); }

  // One range, and more until the time slice is over; then syncs what was written.
  void write_until(Clock::time_point over) {
    for (bool more = !done(); more; more = !done() && Clock::now() < over) {
      const Rows& rows = rows_[next_];
      if (!open_ || open_file_ != rows.file) open(rows.file);
      write(rows);
      ++next_;
    }
    close();
  }

 private:
  void open(size_t file) {
    close();
    open_.emplace(what_.directory / plan_.files[file].name);
    open_file_ = file;
  }

  void close() {
    if (open_) open_->sync();
    open_.reset();
  }

  void write(const Rows& rows) {
    const HfFile& file = plan_.files[rows.file];
    const TensorToWrite& tensor = file.tensors[rows.tensor];
    std::vector<int64_t> sizes = tensor.shape, offset(tensor.shape.size(), 0);
    if (!sizes.empty()) {
      sizes[0] = rows.count;
      offset[0] = rows.first;
    }
    const at::Tensor values = at::empty(sizes, tensor.dtype);
    if (const auto made = plan_.layout.find(tensor.name); made == plan_.layout.end())
      read(tensor.name, values, tensor.shape, offset);
    else
      for (const HfPiece& piece : made->second) read(piece, values, offset);
    open_->write({static_cast<const char*>(values.const_data_ptr()), values.nbytes()},
                 file.header.size() + rows.position);
  }

  // A box of a parameter, from its most precise values. Master copies that differ between ranks
  // (Shard::differs) have one more dim and are skipped: the model contains their mean.
  void read(const std::string& parameter, const at::Tensor& values, const std::vector<int64_t>& shape,
            const std::vector<int64_t>& offset) {
    const std::string master = "master." + parameter;
    const bool finer = finer_ && saved_.manifest().tensors.at(parameter).dtype != values.scalar_type() &&
                       finer_->has(master) && finer_->manifest().tensors.at(master).shape == shape;
    (finer ? *finer_ : saved_).read({finer ? master : parameter, values, shape, offset});
  }

  // The intersection of the piece with the rows `values` of a tensor.
  void read(const HfPiece& piece, const at::Tensor& values, const std::vector<int64_t>& offset) {
    const auto common = stored::within_tensor(piece.part, offset, values.sizes());
    if (!common) return;
    const at::Tensor part = at::empty(common->parameter_size, values.options());
    read(piece.parameter, part, piece.shape, common->in_parameter);
    at::Tensor box = values;
    for (size_t d = 0; d < offset.size(); ++d)
      box = box.narrow(static_cast<int64_t>(d), common->in_tensor[d] - offset[d], common->tensor_size[d]);
    as_parameter(box, piece.part, *common).copy_(part);
  }

  const HfExport& what_;
  const HfPlan& plan_;
  ShardedReader saved_;
  std::optional<ShardedReader> finer_;
  std::vector<Rows> rows_;
  size_t next_ = 0, open_file_ = 0;
  std::optional<PlacedFile> open_;
};

[[noreturn]] void refuse_late(const HfExport& what) {
  char minutes[32];
  std::snprintf(minutes, sizeof minutes, "%.3g", what.limit.count() / 60);
  throw Error(ErrorCode::io, what.directory.string(),
              std::string("the export is not done after ") + minutes + " minutes",
              "raise checkpoint.consolidation_timeout_minutes");
}

}  // namespace

HfPlan export_hf(const HfExport& request, Rendezvous& rendezvous, const std::string& key) {
  HfPlan plan;
  on_every_rank(rendezvous, "plan/" + key, [&] {
    plan = plan_hf(read_manifest(request.sharded / kManifest), request.origin, request.choice,
                   request.model.get());
    if (rendezvous.rank() != 0) return;
    make_directory(request.directory);
    for (const HfFile& file : plan.files) lay_out(request.directory / file.name, file.header, file.bytes());
  });
  const auto over =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(kLongest, request.limit));
  on_every_rank(rendezvous, "export/" + key, [&] {
    Share share(request, plan, rendezvous);
    share.write_until(over);
    if (!share.done()) refuse_late(request);
  });
  on_first(rendezvous, "beside/" + key, [&] {
    for (const HfFile& file : plan.files) PlacedFile(request.directory / file.name).sync();
    for (const auto& [name, bytes] : request.origin.files)
      write_note(request.directory, name, name == "config.json" ? plan.config : bytes);
    if (!plan.index.empty()) write_text(request.directory / "model.safetensors.index.json", plan.index);
  });
  return plan;
}

}  // namespace heddle::checkpoint
