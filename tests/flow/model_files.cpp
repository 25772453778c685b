// Models on disk for the tests of the program.
#include "model_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "flow/stops/started.h"

namespace flow {

Words train(const TrainingFiles& files, const std::string& run, const std::string& model, const Words& more) {
  return plus(files.train(run, {"--model", "{pretrained_model_name_or_path: " + model + "}",
                                "--nproc-per-node", "2", "--step_scheduler.max_steps", "2"}),
              more);
}

std::set<std::string> model_files(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && !name.ends_with(".py");
    if (name == "config.json" || weights) names.insert(name);
  }
  return names;
}

void expect_same_files(const std::string& one, const std::string& other) {
  EXPECT_EQ(model_files(one), model_files(other));
  for (const std::string& name : model_files(one))
    EXPECT_TRUE(read_text(one + "/" + name) == read_text(other + "/" + name)) << one << "/" << name;
}

}  // namespace flow
