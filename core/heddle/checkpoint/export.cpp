// Writing a model as a Hugging Face directory.
#include "heddle/checkpoint/export.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/checkpoint/together.h"

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

void write_files(const HfExport& what, ShardedReader& reader) {
  std::error_code failed;
  fs::create_directories(what.directory, failed);
  if (failed)
    throw Error(ErrorCode::io, what.directory.string(), "cannot be created: " + failed.message(),
                "check the path and its permissions");
  write_text(what.directory / "config.json", what.config_json);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : reader.manifest().tensors)
    tensors.push_back({name, tensor.dtype, tensor.shape});
  const std::vector<FilePlan> files = plan_files(tensors, what.max_shard_bytes);
  for (const FilePlan& file : files) {
    const std::span<const TensorToWrite> held = std::span(tensors).subspan(file.first, file.count);
    SafetensorsWriter writer(what.directory / file.name, held);
    for (const TensorToWrite& tensor : held) {
      const at::Tensor whole = at::empty(tensor.shape, tensor.dtype);
      reader.read({tensor.name, whole, tensor.shape, std::vector<int64_t>(tensor.shape.size(), 0)});
      writer.append(whole);
    }
    writer.finish();
  }
  if (files.size() > 1) write_text(what.directory / "model.safetensors.index.json", index_of(tensors, files));
  remove_older(what.directory, files);
}

}  // namespace

void export_hf(const HfExport& what, Rendezvous& meeting, const std::string& key) {
  on_first(meeting, "export/" + key, [&] {
    ShardedReader reader(what.sharded);
    write_files(what, reader);
  });
}

}  // namespace heddle::checkpoint
