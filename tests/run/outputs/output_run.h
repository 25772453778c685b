// A small run whose outputs are checked before any rank starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "lib/data/tokens/write_tokens.h"
#include "lib/run/preflight/preflight.h"

namespace heddle::tests {

inline constexpr const char* kOutputModel =
    "{config: {model_type: llama, vocab_size: 256, hidden_size: 8, intermediate_size: 8, num_hidden_layers: "
    "1, "
    "num_attention_heads: 1, max_position_embeddings: 8}}";

// A run that saves in FOLDER/run and validates.
class OutputRun {
 public:
  OutputRun() {
    folder.write("text.txt", std::string(200, 'a'));
    const std::vector<std::string> texts = {(folder / "text.txt").string()};
    write_byte_tokens(texts, folder / "train.bin");
    std::filesystem::create_directory(folder / "run");
  }

  // Returns what `heddle train` and `heddle check` report before any rank starts. checkpoint: more keys after
  // checkpoint_dir.
  std::string refusal(const RunOptions& named = {}, const std::string& checkpoint = "",
                      const std::string& model = kOutputModel) const {
    return error_of(folder, [&] { (void)prepared(named, checkpoint, model); });
  }

  RunSpec prepared(const RunOptions& named = {}, const std::string& checkpoint = "",
                   const std::string& model = kOutputModel) const {
    const std::string at = folder.path().string();
    const std::string data = "{file_pattern: " + at + "/train.bin, seq_len: 8}\n";
    const std::filesystem::path yaml = folder.write(
        "run.yaml",
        "step_scheduler: {global_batch_size: 2, local_batch_size: 2, max_steps: 4}\nmodel: " + model +
            "\ndistributed: {strategy: single}\ndataset: " + data + "validation_dataset: " + data +
            "checkpoint: {checkpoint_dir: " + at + "/run" + checkpoint + "}\n");
    PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
    return prepare_run(read_recipe(config::read(yaml.string())), plugins, 1, named);
  }

  Folder folder;
};

}  // namespace heddle::tests
