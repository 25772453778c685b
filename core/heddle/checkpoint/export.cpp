// Writing a model as a Hugging Face directory.
#include "heddle/checkpoint/export.h"

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/whole.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

struct FilePlan {
  std::string name;
  size_t first = 0, count = 0;  // of the parameters
};

// As many parameters in a file as fit, at least one.
std::vector<FilePlan> plan_files(std::span<const TensorToWrite> tensors, int64_t limit) {
  std::vector<FilePlan> files;
  uint64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (files.empty() || filled + tensors[i].bytes() > static_cast<uint64_t>(limit)) {
      files.push_back({"", i, 0});
      filled = 0;
    }
    filled += tensors[i].bytes();
    ++files.back().count;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    files[i].name = files.size() == 1 ? "model.safetensors" : name;
  }
  return files;
}

std::string index_of(std::span<const TensorToWrite> tensors, std::span<const FilePlan> files) {
  nlohmann::ordered_json index;
  uint64_t total = 0;
  for (const FilePlan& file : files)
    for (size_t i = file.first; i < file.first + file.count; ++i) {
      index["weight_map"][tensors[i].name] = file.name;
      total += tensors[i].bytes();
    }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", index["weight_map"]}}
             .dump(2) +
         "\n";
}

// Files of an older export that the new one did not replace would be read instead of it.
void remove_older(const fs::path& directory, std::span<const FilePlan> files) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && name.ends_with(".safetensors");
    bool ours = name == "model.safetensors.index.json" ? files.size() > 1 : !weights;
    for (const FilePlan& file : files) ours = ours || name == file.name;
    if (name == "model.safetensors.index.json" && files.size() == 1) ours = false;
    if (!ours) fs::remove(entry.path(), ignored);
  }
}

// What rank 0 writes. A failure is kept while the other ranks go on sending, so that nobody waits in vain.
class HfWriter {
 public:
  HfWriter(const HfExport& what, std::span<const TensorToWrite> tensors, bool writes)
      : what_(what), tensors_(tensors), files_(plan_files(tensors, what.max_shard_bytes)), writes_(writes) {
    guarded([&] {
      std::error_code failed;
      fs::create_directories(what_.directory, failed);
      if (failed)
        throw Error(ErrorCode::io, what_.directory.string(), "cannot be created: " + failed.message(),
                    "check the path and its permissions");
      write_text(what_.directory / "config.json", what_.config_json);
    });
  }
  void append(size_t index, const at::Tensor& whole) {
    guarded([&] {
      const FilePlan& file = files_[at_];
      if (index == file.first)
        writer_.emplace(what_.directory / file.name, tensors_.subspan(file.first, file.count));
      writer_->append(whole);
    });
    if (index + 1 != files_[at_].first + files_[at_].count) return;
    guarded([&] { writer_->finish(); });
    writer_.reset();
    ++at_;
  }
  void finish() {
    guarded([&] {
      if (files_.size() > 1)
        write_text(what_.directory / "model.safetensors.index.json", index_of(tensors_, files_));
      remove_older(what_.directory, files_);
    });
  }
  const std::optional<Error>& failure() const { return failure_; }

 private:
  template <class Work>
  void guarded(const Work& work) {
    if (!writes_ || failure_) return;
    try {
      work();
    } catch (const Error& error) {
      failure_ = error;
      writer_.reset();
    }
  }

  const HfExport& what_;
  std::span<const TensorToWrite> tensors_;
  std::vector<FilePlan> files_;
  bool writes_;
  size_t at_ = 0;
  std::optional<SafetensorsWriter> writer_;
  std::optional<Error> failure_;
};

}  // namespace

void export_hf(Stages& stages, const DeviceMesh& mesh, const HfExport& what) {
  WholeParameters parameters(stages, mesh, what.key);
  HfWriter writer(what, parameters.tensors(), mesh.rank("world") == 0);
  for (size_t index = 0; index < parameters.tensors().size(); ++index)
    writer.append(index, parameters.gather(index));
  writer.finish();
  nlohmann::json outcome;
  if (writer.failure())
    outcome = {writer.failure()->where(), writer.failure()->message(), writer.failure()->hint()};
  const auto told = nlohmann::json::parse(mesh.meeting().exchange("export/" + what.key, outcome.dump())[0]);
  if (writer.failure()) throw *writer.failure();
  if (!told.is_null()) throw Error(ErrorCode::io, told[0], told[1], told[2]);
}

}  // namespace heddle::checkpoint
