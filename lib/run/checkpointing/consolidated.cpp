// Exports the model of a checkpoint in the Hugging Face format.
#include "lib/run/checkpointing/consolidated.h"

#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/export.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

checkpoint::HfExport export_of(const RunSpec& run, const fs::path& stage, const fs::path& to) {
  const CheckpointSection& section = run.recipe.checkpoint;
  checkpoint::HfExport what;
  what.sharded = stage / "model";
  what.finer = stage / "optim";
  what.directory = stage / to;
  what.origin = run.model.origin;
  what.model = run.model.spec;
  what.choice = export_choice(section);
  if (section.single_rank_consolidation) what.writers = checkpoint::HfExport::Writers::first;
  what.limit = std::chrono::duration<double>(section.consolidation_timeout_minutes * 60);
  return what;
}

bool lies_in(const fs::path& place, const fs::path& directory) {
  const fs::path inside = place.lexically_relative(directory);
  return !inside.empty() && *inside.begin() != "..";
}

// Every rank detects a lost rank by itself, and no collective can follow.
bool leaves_the_rest_whole(const Error& error, const fs::path& stage, const fs::path& exported) {
  if (error.code() == ErrorCode::rank_lost || error.code() == ErrorCode::timeout) return false;
  return lies_in(error.where(), exported) || !lies_in(error.where(), stage);
}

// Returns the error with the path that the stage has once it is published.
Error after_publishing(const Error& error, const fs::path& stage, const fs::path& directory) {
  const fs::path inside = fs::path(error.where()).lexically_relative(stage);
  const std::string where =
      lies_in(error.where(), stage) ? (directory / inside).string() : std::string(error.where());
  return {error.code(), where, error.message(),
          "the checkpoint is saved without the export. Run heddle convert " + directory.string() +
              " MODEL to export the model" +
              (error.hint().empty() ? "" : ". To avoid the error: " + error.hint())};
}

}  // namespace

checkpoint::Manifest manifest_of(const Units& units) {
  checkpoint::Manifest out;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      out.tensors[slot.name] = {slot.tensor->scalar_type(), slot.tensor->sizes().vec(), {}};
  return out;
}

checkpoint::HfChoice export_choice(const CheckpointSection& section) {
  checkpoint::HfChoice choice;
  if (section.v4_compatible) choice.config = checkpoint::HfChoice::Config::readable_by_v4;
  return choice;
}

std::optional<Error> write_consolidated(const RunSpec& run, const fs::path& stage, const fs::path& directory,
                                        Rendezvous& rendezvous) {
  const fs::path to = fs::path("model") / "consolidated";
  const std::string key = directory.filename().string();
  try {
    checkpoint::export_hf(export_of(run, stage, to), rendezvous, key);
    return std::nullopt;
  } catch (const Error& error) {
    if (!leaves_the_rest_whole(error, stage, stage / to)) throw;
    checkpoint::on_first(rendezvous, "without export/" + key, [&] { fs::remove_all(stage / to); });
    return after_publishing(error, stage, directory);
  }
}

}  // namespace heddle
