// Leaves out boxes, and writes added parameters once more in a format of their own.
#include "lib/run/checkpointing/saved_parts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle {

using checkpoint::Part;

namespace {

std::vector<std::string> added_names(const PreparedModel& model) {
  std::set<std::string> names;
  for (const Transformed& one : model.changes)
    if (!one.added_elsewhere) names.insert(one.added.begin(), one.added.end());
  return {names.begin(), names.end()};
}

}  // namespace

std::vector<Part> saved_parts(const RunSpec& run, Stages& stages) {
  std::vector<Part> parts = checkpoint::model_parts(stages);
  const std::set<std::string> elsewhere = run.model.elsewhere();
  std::erase_if(parts, [&](const Part& part) { return elsewhere.count(part.name) != 0; });
  return parts;
}

void write_added(const PreparedModel& model, const std::filesystem::path& directory) {
  const AddedFiles* files = model.added_files();
  if (files == nullptr) return;
  const std::vector<std::string> names = added_names(model);
  checkpoint::ShardedReader reader(directory);
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const std::string& name : names) {
    const checkpoint::SavedTensor& saved = reader.manifest().tensors.at(name);
    const auto stored = files->stored.find(name);
    const bool own = stored == files->stored.end();
    tensors.push_back({files->prefix + (own ? name : stored->second.name), saved.dtype,
                       own ? saved.shape : stored->second.shape});
  }
  checkpoint::SafetensorsWriter writer(directory / files->weights, tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::vector<int64_t>& shape = reader.manifest().tensors.at(names[i]).shape;
    Part whole{names[i], at::empty(shape, tensors[i].dtype), shape, std::vector<int64_t>(shape.size(), 0)};
    reader.read(whole);
    if (const auto stored = files->stored.find(names[i]); stored != files->stored.end())
      whole.tensor = whole.tensor.permute(stored->second.dims).reshape(stored->second.shape);
    writer.append(whole.tensor);
  }
  writer.finish();
  for (const auto& [name, text] : files->texts) checkpoint::write_text(directory / name, text);
  for (const auto& [name, bytes] : model.origin.files)
    if (name != "config.json" && name != "generation_config.json")
      checkpoint::write_text(directory / name, bytes);
}

}  // namespace heddle
