// Weights of Hugging Face directories: single files, sharded files and damaged directories.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "checkpoint/toy_spec.h"
#include "checkpoint/write_safetensors.h"
#include "heddle/checkpoint/hf_source.h"

namespace heddle {
namespace {

using tests::error_of;
using tests::Folder;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

void write_two_files(const Folder& folder) {
  tests::write_safetensors(folder / "one.safetensors", Named{{"a", at::ones({2, 3})}});
  tests::write_safetensors(folder / "two.safetensors", Named{{"b", at::full({4}, 2.0)}});
}

Shard shard_of(const std::string& name, std::vector<int64_t> shape) {
  return {name, at::zeros(shape), shape, std::vector<int64_t>(shape.size(), 0), {}, {}, {}};
}

TEST(HfWeights, ReadsTheFilesOfAnIndex) {
  const Folder folder;
  write_two_files(folder);
  folder.write("model.safetensors.index.json",
               R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const HfWeights weights(folder.path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b"}));
  at::Tensor b = at::empty({2});
  weights.read("b", std::vector<int64_t>{1}, b);
  EXPECT_EQ(b.sum().item<float>(), 4.0F);
  EXPECT_EQ(weights.at("a").shape, (std::vector<int64_t>{2, 3}));
}

TEST(HfWeights, RefusesADirectoryWithoutWeights) {
  const Folder folder;
  EXPECT_EQ(error_of(folder, [&] { HfWeights weights(folder.path()); }),
            "error[input] FOLDER: holds neither model.safetensors nor model.safetensors.index.json\n"
            "  hint: name a Hugging Face directory with safetensors weights");
}

TEST(HfWeights, RefusesAnIndexThatLies) {
  const Folder folder;
  write_two_files(folder);
  const auto with = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", map);
    return error_of(folder, [&] { HfWeights weights(folder.path()); });
  };
  EXPECT_EQ(with("[]"), "error[input] FOLDER/model.safetensors.index.json: is not JSON with a weight_map");
  EXPECT_EQ(with(R"({"weight_map":{"a":"two.safetensors"}})"),
            "error[input] FOLDER/two.safetensors: holds no tensor \"a\", but the index says it does\n"
            "  hint: download the index and the weights again");
  EXPECT_EQ(with(R"({"weight_map":{"a":"../one.safetensors"}})"),
            "error[input] FOLDER/model.safetensors.index.json: tensor \"a\": expected the name of a file "
            "beside it, "
            "got \"../one.safetensors\"");
  EXPECT_EQ(with(R"({"weight_map":{"a":"three.safetensors"}})"),
            "error[input] FOLDER/three.safetensors: cannot be read: No such file or directory\n"
            "  hint: is the file there, and may it be read? copy it again, or resume from another");
}

TEST(HfSource, NamesAMissingTensorAndAWrongShape) {
  const Folder folder;
  tests::write_safetensors(folder / "model.safetensors", Named{{"model.norm.weight", at::ones({3})}});
  const auto source = checkpoint::hf_source(folder.path(), std::make_shared<HfWeights>(folder.path()));
  EXPECT_EQ(
      error_of(folder, [&] { source(shard_of("model.norm.wight", {3})); }),
      "error[input] FOLDER: the weights hold no tensor \"model.norm.wight\"\n"
      "  hint: the nearest name is \"model.norm.weight\"; do config.json and the weights belong together?");
  EXPECT_EQ(error_of(folder, [&] { source(shard_of("model.norm.weight", {4})); }),
            "error[input] FOLDER: tensor \"model.norm.weight\" has the shape [3], the model needs [4]\n"
            "  hint: do config.json and the weights belong together?");
}

TEST(HfSource, ReadsATiedEmbeddingThatWasSavedAsTheHead) {
  const Folder folder;
  tests::write_safetensors(folder / "model.safetensors", Named{{"lm_head.weight", at::full({3, 2}, 7.0)}});
  const auto model = std::make_shared<tests::ToySpec>();
  model->others = {{"model.embed_tokens.weight", {"lm_head.weight"}}};
  const auto source = checkpoint::hf_source(folder.path(), std::make_shared<HfWeights>(folder.path()), model);
  const Shard shard = shard_of("model.embed_tokens.weight", {3, 2});
  EXPECT_TRUE(source(shard));
  EXPECT_EQ(shard.tensor.sum().item<float>(), 42.0F);
}

}  // namespace
}  // namespace heddle
