// `heddle convert`: finds the model, writes it as the other kind into a stage, and publishes it.
#include "trainer/cli/convert.h"

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/outputs.h"
#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/huggingface/export.h"
#include "lib/checkpoint/huggingface/shard_hf.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/convert_stage.h"
#include "trainer/cli/launch/ranks.h"
#include "trainer/models/find_model.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kTimeout{1};  // of a rank that waits for the others

// "out/" is "out"; a directory that holds nothing may be there.
fs::path destination_of(const std::string& given) {
  const fs::path normal = fs::path(given).lexically_normal();
  const fs::path path = normal.has_filename() ? normal : normal.parent_path();
  check_free(path);
  const std::array outputs = {Output{path, "heddle convert", "model", {}, Output::Form::directory}};
  refuse_outputs(outputs, {});
  return path;
}

std::optional<c10::ScalarType> dtype_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  return word == "bfloat16" ? at::kBFloat16 : word == "float16" ? at::kHalf : at::kFloat;
}

void check_options(const ConvertCommand& command, const ModelPlace& from) {
  if (from.kind == ModelPlace::Kind::sharded) return;
  const std::string given = !command.dtype.empty()   ? "--dtype"
                            : command.max_shard_size ? "--max-shard-size"
                                                     : "";
  if (!given.empty())
    throw Error(ErrorCode::usage, "heddle convert",
                given + " says how a Hugging Face directory is written, and " + from.weights.string() +
                    " is one: it becomes a sharded model, tensor for tensor",
                command.dtype.empty()
                    ? "leave it out: a sharded model has one file for each rank"
                    : "leave it out: runs and heddle generate read a model in any dtype; for "
                      "other dtypes on the disk, convert the sharded model back with --dtype");
}

std::string size_of(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB", "PB", "EB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", size, kUnits[unit]);
  return text;
}

std::string to_hf(const ConvertCommand& command, const ModelPlace& from, const fs::path& stage,
                  std::shared_ptr<const ModelSpec> model, Rendezvous& meeting) {
  checkpoint::HfExport what;
  what.sharded = from.weights;
  what.finer = from.optimizer;
  what.directory = stage;
  what.origin = checkpoint::kept_origin(from.notes);
  what.model = std::move(model);
  what.choice.dtype = dtype_of(command.dtype);
  what.choice.max_file_bytes = command.max_shard_size;
  what.limit = std::chrono::hours(24 * 365);
  const checkpoint::HfPlan plan = checkpoint::export_hf(what, meeting, "convert");
  size_t tensors = 0;
  uint64_t bytes = 0;
  for (const checkpoint::HfFile& file : plan.files) {
    tensors += file.tensors.size();
    bytes += file.bytes();
  }
  return "a Hugging Face directory of " + std::to_string(tensors) + " tensors, " + size_of(bytes) + " in " +
         std::to_string(plan.files.size()) + (plan.files.size() == 1 ? " file" : " files");
}

std::string to_sharded(const ModelPlace& from, const fs::path& stage, const ModelSpec& model,
                       Rendezvous& meeting) {
  const HfWeights weights(from.weights);
  checkpoint::shard_hf(weights, stage, meeting, "convert", &model);
  checkpoint::on_first(meeting, "notes", [&] {
    checkpoint::keep_origin(stage / checkpoint::kHfMetadata, checkpoint::read_origin(from.weights, weights));
  });
  uint64_t bytes = 0;
  for (const std::string& name : weights.names()) bytes += weights.bytes(name).size();
  const int ranks = meeting.world_size();
  return "a sharded model of " + std::to_string(weights.names().size()) + " tensors, " + size_of(bytes) +
         " in " + std::to_string(ranks) + (ranks == 1 ? " shard" : " shards");
}

void convert_on(const ConvertCommand& command, const ModelPlace& from, const fs::path& to,
                const std::shared_ptr<const ModelSpec>& model, Rendezvous& meeting) {
  std::optional<ConvertStage> own;  // on rank 0
  checkpoint::on_first(meeting, "stage", [&] { own.emplace(to); });
  const fs::path stage = checkpoint::stage_of(to);
  const std::string made = from.kind == ModelPlace::Kind::sharded
                               ? to_hf(command, from, stage, model, meeting)
                               : to_sharded(from, stage, *model, meeting);
  checkpoint::on_first(meeting, "publish", [&] { own->publish(); });
  if (meeting.rank() == 0) std::cout << to.string() << ": " << made << std::endl;
}

}  // namespace

int convert(const ConvertCommand& command) {
  const ModelPlace from = find_model(command.source);
  check_options(command, from);
  const fs::path to = destination_of(command.destination);
  PluginRegistry plugins = plugins_of_file(command.config);
  const auto model = engine::read_model(from.notes / "config.json", plugins);
  return run_ranks(plan_ranks(command.nproc_per_node), kTimeout, [&](Rendezvous& meeting) {
    convert_on(command, from, to, model, meeting);
    return 0;
  });
}

}  // namespace heddle::cli
