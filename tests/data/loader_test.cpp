// The section `dataloader` as AutoModel's recipes write it.
#include <gmock/gmock.h>

#include "lib/run/recipe/recipe.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

int64_t pad_multiple(const std::string& loader) {
  const std::string yaml = "dataloader: " + loader + "\nmodel: {config: {model_type: llama}}\n";
  return read_recipe(config::read_text(yaml, "run.yaml")).pad_multiple;
}

TEST(Dataloader, IsTakenAsAutoModelWritesIt) {
  EXPECT_EQ(pad_multiple("{_target_: torch.utils.data.DataLoader, batch_size: null, num_workers: 0}"), 1);
  EXPECT_EQ(pad_multiple("{batch_size: 1, collate_fn: torch.utils.data.default_collate}"), 1);
  EXPECT_EQ(pad_multiple("{collate_fn: {_target_: a.default_collater, pad_seq_len_divisible: 160}}"), 160);
}

TEST(Dataloader, IsRefusedByItsKeys) {
  for (const auto& [loader, message] :
       {std::pair{
            "{batch_size: 2}",
            "run.yaml:1 dataloader.batch_size: batch_size is 2, but step_scheduler.local_batch_size is 1; a "
            "microbatch has one size\n  hint: remove dataloader.batch_size, or set both to the same value"},
        {"{collate_fn: {pad_seq_len_divisible: 8}}",
         "run.yaml:1 dataloader.collate_fn: _target_ is missing\n  hint: _target_: default_collater"},
        {"{collate_fn: {_target_: default_collater, pad_seq_len_divisible: 0}}",
         "pad_seq_len_divisible must be greater than 0 or null, got 0"},
        {"{collate_fn: {_target_: default_collater, pad_to: 8}}", "unknown key 'pad_to'"},
        {"{collate_fn: prefix_tree_collate_fn}", "unknown component 'prefix_tree_collate_fn'"}})
    EXPECT_THAT(tests::thrown_by([&, &text = loader] { pad_multiple(text); }), HasSubstr(message));
}

}  // namespace
}  // namespace heddle
