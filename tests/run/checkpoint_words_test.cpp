// Keys of the section checkpoint that concern models: which ones act, and which ones are ignored.
#include <gmock/gmock.h>

#include "lib/run/recipe/readers.h"

namespace heddle {
namespace {

using ::testing::IsEmpty;

std::vector<std::string> words_refused(const std::string& words) {
  RecipeNotes notes;
  SectionErrors found;
  recipe::read_checkpoint(config::read_text(words, "run.yaml"), notes, found);
  found.errors.raise();
  return notes.not_built;
}

TEST(CheckpointFields, SetTheExport) {
  RecipeNotes notes;
  SectionErrors found;
  const CheckpointSection section = recipe::read_checkpoint(
      config::read_text(
          "{consolidation_timeout_minutes: 0.5, single_rank_consolidation: true, v4_compatible: true, "
          "save_consolidated: every}",
          "run.yaml"),
      notes, found);
  EXPECT_THAT(notes.not_built, IsEmpty());
  EXPECT_EQ(section.consolidation_timeout_minutes, 0.5);
  EXPECT_TRUE(section.single_rank_consolidation);
  EXPECT_TRUE(section.v4_compatible);
}

TEST(CheckpointFields, AreAcceptedWhenTheyHaveNoEffect) {
  EXPECT_THAT(
      words_refused("{is_peft: false, dequantize_base_checkpoint: false, original_model_root_dir: null, "
                    "diffusers_compatible: false, model_save_format: safetensors}"),
      IsEmpty());
  EXPECT_THAT(
      words_refused("{is_peft: true, dequantize_base_checkpoint: true, model_save_format: torch_save}"),
      IsEmpty());
}

}  // namespace
}  // namespace heddle
