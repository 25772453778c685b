// Every key of checkpoint: that is about models in and out: it is built, or refused with its reason.
#include <gmock/gmock.h>

#include "lib/run/recipe/readers.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> words_refused(const std::string& words) {
  RecipeNotes notes;
  recipe::SectionErrors found;
  recipe::read_checkpoint(config::read_text(words, "run.yaml"), notes, found);
  found.errors.raise();
  return notes.not_built;
}

TEST(CheckpointFields, SetTheExport) {
  RecipeNotes notes;
  recipe::SectionErrors found;
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

TEST(CheckpointFields, AreRefusedForOtherCheckpointFormats) {
  EXPECT_THAT(words_refused("{original_model_root_dir: /models}"),
              ElementsAre("checkpoint.original_model_root_dir: names and dtypes of an export are those of "
                          "model.pretrained_model_name_or_path"));
  EXPECT_THAT(words_refused("{diffusers_compatible: true}"),
              ElementsAre("checkpoint.diffusers_compatible: files are named as transformers has them"));
  EXPECT_THAT(words_refused("{model_repo_id: a/b}"),
              ElementsAre("checkpoint.model_repo_id: models are not downloaded"));
}

}  // namespace
}  // namespace heddle
