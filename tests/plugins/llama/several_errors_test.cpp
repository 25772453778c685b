// All that is wrong with the keys of one model, in one go.
#include <gmock/gmock.h>

#include "checkpoint/folder.h"
#include "heddle/engine/engine.h"
#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using tests::Folder;

TEST(ModelConfig, NamesAllWrongValuesTogether) {
  const Folder folder;
  const auto file = folder.write("config.json", R"({"model_type":"llama",
"vocab_size":0,
"hidden_size":-4,
"num_hidden_layers":"x",
"rms_norm_eps":0,
"quantization_config":{"bits":4}})");
  try {
    engine::read_model(file, tests::built_plugins());
    FAIL();
  } catch (const ErrorList& errors) {
    std::vector<std::string> keys;
    for (const Error& error : errors.all())
      keys.push_back(error.where().substr(error.where().rfind(' ') + 1));
    EXPECT_THAT(keys, ::testing::UnorderedElementsAre("vocab_size", "hidden_size", "num_hidden_layers",
                                                      "rms_norm_eps", "quantization_config"));
  }
  // What depends on others, once those are right.
  try {
    const auto dependent =
        folder.write("config.json", R"({"model_type":"llama","num_key_value_heads":3,"pad_token_id":40000})");
    engine::read_model(dependent, tests::built_plugins());
    FAIL();
  } catch (const ErrorList& errors) {
    EXPECT_EQ(errors.all().size(), 2u);
  }
}

}  // namespace
}  // namespace heddle
