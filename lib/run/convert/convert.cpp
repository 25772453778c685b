// Converts a model on disk into a stage and publishes it.
#include "lib/run/convert/convert.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/export.h"
#include "lib/checkpoint/huggingface/shard_hf.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/run/checkpointing/consolidated.h"
#include "lib/run/convert/convert_stage.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB", "PB", "EB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", size, kUnits[unit]);
  return text;
}

uint64_t bytes_of(const checkpoint::BaseWeights::Tensor& tensor) {
  auto bytes = static_cast<uint64_t>(c10::elementSize(tensor.dtype));
  for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

// Writes the model with its adapters merged, as write_sharded() does. Each rank holds its share of the
// parameters in memory. A collective.
void write_merged(const PreparedModel& model, const std::filesystem::path& directory,
                  Rendezvous& rendezvous) {
  std::vector<checkpoint::Part> parts;
  checkpoint::on_first(rendezvous, "merge", [&] { std::filesystem::create_directories(directory); });
  checkpoint::on_every_rank(rendezvous, "merge/read", [&] {
    std::set<std::string> seen;
    for (const auto& unit : model.make())
      for (const ParameterSlot& slot : unit->parameters()) {
        if (!seen.insert(slot.name).second) continue;
        const auto count = static_cast<int>(seen.size());
        if (count % rendezvous.world_size() != rendezvous.rank()) continue;
        const auto stored = model.origin.tensors.find(slot.name);
        const at::ScalarType dtype =
            stored == model.origin.tensors.end() ? slot.tensor->scalar_type() : stored->second.dtype;
        Shard shard = whole_shard(slot, {});
        shard.tensor = at::empty(shard.shape, dtype);
        model.source(shard);
        parts.push_back(checkpoint::part_of(shard, shard.tensor));
      }
  });
  checkpoint::write_sharded(directory, "model", parts, rendezvous, "merge/write");
}

std::string to_hf(const Conversion& conversion, const fs::path& stage, Rendezvous& rendezvous) {
  const fs::path sum = stage / ".merged";
  const PreparedModel* merged = conversion.merged;
  checkpoint::HfExport what;
  what.sharded = merged == nullptr ? conversion.from.weights : sum;
  what.finer = merged == nullptr ? conversion.from.optimizer : fs::path();
  what.directory = stage;
  what.origin = merged == nullptr ? checkpoint::kept_origin(conversion.from.notes) : merged->origin;
  note_end_tokens(what.origin.files, what.origin.files, -1);
  what.model = conversion.model;
  what.choice.dtype = conversion.dtype;
  what.choice.max_file_bytes = conversion.max_shard_size;
  what.limit = std::chrono::hours(24 * 365);
  if (merged != nullptr) {
    checkpoint::on_every_rank(rendezvous, "merge/plan", [&] {
      (void)checkpoint::plan_hf(manifest_of(merged->make()), what.origin, what.choice, what.model.get());
    });
    write_merged(*merged, sum, rendezvous);
  }
  const checkpoint::HfPlan plan = checkpoint::export_hf(what, rendezvous, "convert");
  if (merged != nullptr) checkpoint::on_first(rendezvous, "merge/end", [&] { fs::remove_all(sum); });
  size_t tensors = 0;
  uint64_t bytes = 0;
  for (const checkpoint::HfFile& file : plan.files) {
    tensors += file.tensors.size();
    bytes += file.bytes();
  }
  return "a Hugging Face directory of " + std::to_string(tensors) + " tensors, " + size_text(bytes) + " in " +
         std::to_string(plan.files.size()) + (plan.files.size() == 1 ? " file" : " files");
}

std::string to_sharded(const Conversion& conversion, const fs::path& stage, Rendezvous& rendezvous) {
  const fs::path& from = conversion.from.weights;
  const auto weights = std::make_shared<const HfWeights>(from);
  const checkpoint::BaseWeights base(from, weights, checkpoint::quantization_in(from));
  checkpoint::HfOrigin origin;
  checkpoint::on_first(rendezvous, "notes", [&] {
    origin = conversion.origin != nullptr ? *conversion.origin : checkpoint::read_origin(from, *weights);
  });
  checkpoint::shard_hf(base, stage, rendezvous, "convert", conversion.model.get());
  checkpoint::on_first(rendezvous, "origin",
                       [&] { checkpoint::keep_origin(stage / checkpoint::kHfMetadata, origin); });
  uint64_t bytes = 0;
  for (const std::string& name : base.names()) bytes += bytes_of(base.at(name));
  const int ranks = rendezvous.world_size();
  return "a sharded model of " + std::to_string(base.names().size()) + " tensors, " + size_text(bytes) +
         " in " + std::to_string(ranks) + (ranks == 1 ? " shard" : " shards");
}

// Throws for a checkpoint that holds adapters only and no files that PEFT could read.
void refuse_without_model(const Conversion& conversion) {
  const checkpoint::ShardedReader reader(conversion.from.weights);
  for (const auto& unit : conversion.model->make_units(at::TensorOptions(at::kMeta)))
    for (const ParameterSlot& slot : unit->parameters())
      if (!reader.manifest().tensors.contains(slot.name))
        throw Error(ErrorCode::input, (conversion.from.weights / checkpoint::kManifest).string(),
                    "holds no tensor '" + slot.name + "', so it is not a whole model",
                    "adapters without adapter_model.safetensors cannot be merged; see the warning of the run "
                    "that saved them");
}

}  // namespace

std::string convert(const Conversion& conversion, Rendezvous& rendezvous) {
  if (conversion.from.kind == ModelPlace::Kind::sharded && conversion.merged == nullptr)
    refuse_without_model(conversion);
  std::optional<ConvertStage> own;  // set on rank 0
  checkpoint::on_first(rendezvous, "stage", [&] { own.emplace(conversion.to); });
  const fs::path stage = checkpoint::stage_of(conversion.to);
  const bool sharded = conversion.from.kind == ModelPlace::Kind::sharded;
  const std::string made = sharded || conversion.merged != nullptr
                               ? to_hf(conversion, stage, rendezvous)
                               : to_sharded(conversion, stage, rendezvous);
  checkpoint::on_first(rendezvous, "publish", [&] { own->publish(); });
  return made;
}

}  // namespace heddle
