// Skips boxes that checkpoints leave out, and writes added parameters in their own file format.
#include "lib/run/checkpointing/saved_parts.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lib/checkpoint/huggingface/stored_view.h"
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

// A tensor of the file and the parameters that it contains.
struct FileTensor {
  checkpoint::TensorToWrite tensor;
  std::vector<std::pair<std::string, const AddedTensor*>> parameters;  // null: the whole tensor
};

std::vector<FileTensor> contents_of(const AddedFiles& files, const std::vector<std::string>& names,
                                    const checkpoint::Manifest& manifest) {
  std::vector<FileTensor> out;
  std::map<std::string, size_t> places;
  for (const std::string& name : names) {
    const checkpoint::SavedTensor& saved = manifest.tensors.at(name);
    const auto found = files.stored.find(name);
    const AddedTensor* stored = found == files.stored.end() ? nullptr : &found->second;
    const std::string tensor = files.prefix + (stored == nullptr ? name : stored->name);
    const auto [place, is_new] = places.emplace(tensor, out.size());
    if (is_new) out.push_back({{tensor, saved.dtype, stored == nullptr ? saved.shape : stored->shape}, {}});
    out[place->second].parameters.emplace_back(name, stored);
  }
  return out;
}

at::Tensor read_whole(const FileTensor& from, checkpoint::ShardedReader& reader) {
  at::Tensor joined;
  for (const auto& [name, stored] : from.parameters) {
    const std::vector<int64_t>& shape = reader.manifest().tensors.at(name).shape;
    Part whole{name, at::empty(shape, from.tensor.dtype), shape, std::vector<int64_t>(shape.size(), 0)};
    reader.read(whole);
    if (stored == nullptr) return whole.tensor;
    if (stored->within.empty()) return whole.tensor.permute(stored->dims).reshape(stored->shape);
    if (!joined.defined()) joined = at::empty(stored->shape, from.tensor.dtype);
    for (const StoredPart& part : stored->within) {
      const auto common = *stored::within_parameter(part, whole.offset, shape);
      at::Tensor box = joined;
      for (size_t d = 0; d < part.first.size(); ++d)
        box = box.narrow(static_cast<int64_t>(d), common.in_tensor[d], common.tensor_size[d]);
      checkpoint::as_parameter(box, part, common)
          .copy_(checkpoint::piece_of(whole.tensor, whole.offset, common));
    }
  }
  return joined;
}

}  // namespace

std::vector<const Shard*> saved_shards(const RunSpec& run, Stages& stages) {
  const std::set<std::string> elsewhere = run.model.elsewhere();
  std::vector<const Shard*> shards;
  for (const Shard* shard : stages.shards())
    if (elsewhere.count(shard->name) == 0) shards.push_back(shard);
  return shards;
}

std::vector<Part> saved_parts(const RunSpec& run, engine::Model& model, Differing differing) {
  const at::NoGradGuard no_gradients;
  std::vector<Part> parts;
  for (const Shard* shard : saved_shards(run, model.stages)) {
    Part& part = parts.emplace_back(checkpoint::part_of(*shard, shard->tensor.detach()));
    if (differing == Differing::own || shard->differs.empty() || !part.tensor.is_floating_point()) continue;
    part.tensor = part.tensor.clone(at::MemoryFormat::Contiguous);
    for (const std::string& axis : shard->differs)
      if (model.mesh.size(axis) > 1) model.mesh.group(axis).all_reduce(part.tensor, Reduce::average)->wait();
  }
  return parts;
}

Part part_of_rank(const DeviceMesh& mesh, std::span<const std::string> axes, Part part) {
  if (axes.empty()) return part;
  StateTensor own = rank_state(mesh, axes, {part.name, part.tensor, part.shape, part.offset});
  return {own.name, own.tensor, own.shape, own.offset, part.only_read};
}

std::vector<Part> state_parts(const RunSpec& run, Step& step, engine::Model& model) {
  std::vector<Part> parts;
  for (const OptimizerState& state : step.optimizer_state())
    for (const StateTensor& one : state.tensors)
      parts.push_back(part_of_rank(model.mesh, state.shard->differs,
                                   {one.name + "." + state.shard->name, one.tensor, one.shape, one.offset,
                                    state.shard->tied_to_earlier}));
  for (const Shard* shard : saved_shards(run, model.stages))
    if (!shard->differs.empty())
      parts.push_back(part_of_rank(model.mesh, shard->differs,
                                   checkpoint::part_of(*shard, shard->tensor.detach(), kOwnPrefix)));
  for (Part& part : checkpoint::strategy_parts(model.stages)) parts.push_back(std::move(part));
  return parts;
}

void write_added(const PreparedModel& model, const std::filesystem::path& directory) {
  const AddedFiles* files = model.added_files();
  if (files == nullptr) return;
  checkpoint::ShardedReader reader(directory);
  const std::vector<FileTensor> contents = contents_of(*files, added_names(model), reader.manifest());
  std::vector<checkpoint::TensorToWrite> tensors;
  for (const FileTensor& one : contents) tensors.push_back(one.tensor);
  checkpoint::SafetensorsWriter writer(directory / files->weights, tensors);
  for (const FileTensor& one : contents) writer.append(read_whole(one, reader));
  writer.finish();
  for (const auto& [name, text] : files->texts) checkpoint::write_text(directory / name, text);
  for (const auto& [name, bytes] : model.origin.files)
    if (name != "config.json" && name != "generation_config.json")
      checkpoint::write_note(directory, name, bytes);
}

}  // namespace heddle
