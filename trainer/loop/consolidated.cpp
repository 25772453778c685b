// The model of a checkpoint as transformers reads it.
#include "trainer/loop/consolidated.h"

#include "heddle/checkpoint/export.h"

namespace heddle {

void write_consolidated(const Job& job, const std::filesystem::path& model,
                        const std::filesystem::path& optimizer, Rendezvous& meeting, const std::string& key) {
  const CheckpointSection& section = job.recipe.checkpoint;
  checkpoint::HfExport what;
  what.sharded = model;
  what.finer = optimizer;
  what.directory = model / "consolidated";
  what.origin = job.model.origin;
  if (section.v4_compatible) what.choice.config = checkpoint::HfChoice::Config::readable_by_v4;
  if (section.single_rank_consolidation) what.writers = checkpoint::HfExport::Writers::first;
  what.limit = std::chrono::duration<double>(section.consolidation_timeout_minutes * 60);
  checkpoint::export_hf(what, meeting, key);
}

}  // namespace heddle
