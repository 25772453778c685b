// Identity of a model's files: equal for equal values in any files, different for different values.
#include "lib/run/model/identity/model_identity.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/roll.h>
#include <gmock/gmock.h>

#include <fstream>

#include "checkpoint/folder.h"
#include "checkpoint/write_safetensors.h"
#include "lib/run/model/adapter/adapter.h"

namespace heddle::tests {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors some_tensors() {
  return {{"large", at::arange(40000, at::kFloat)},
          {"long", at::arange(30000, at::kFloat).view({300, 100})},
          {"short", at::arange(6, at::kFloat)}};
}

class ModelIdentities : public ::testing::Test {
 protected:
  ModelPlace write(const std::string& name, const NamedTensors& tensors) const {
    std::filesystem::create_directories(folder_ / name);
    write_safetensors(folder_ / name / "model.safetensors", tensors);
    return {ModelPlace::Kind::hugging_face, folder_ / name, folder_ / name, {}};
  }

  Folder folder_;
};

TEST_F(ModelIdentities, AreEqualForEqualValuesInOtherFiles) {
  const ModelPlace one = write("one", some_tensors());
  const NamedTensors tensors = some_tensors();
  std::filesystem::create_directories(folder_ / "two");
  write_safetensors(folder_ / "two/b.safetensors", std::span(tensors).first(1));
  write_safetensors(folder_ / "two/a.safetensors", std::span(tensors).subspan(1));
  std::ofstream(folder_ / "two/model.safetensors.index.json")
      << R"({"weight_map": {"large": "b.safetensors", "long": "a.safetensors", "short": "a.safetensors"}})";
  const ModelPlace two{ModelPlace::Kind::hugging_face, folder_ / "two", folder_ / "two", {}};
  const ModelIdentity first = identity_of(one), second = identity_of(two);
  EXPECT_TRUE(are_alike(first, second));
  EXPECT_EQ(first.bytes, 4 * 70006);
  EXPECT_EQ(first.place, std::filesystem::canonical(folder_ / "one").string());
  EXPECT_NE(first.place, second.place);
  EXPECT_EQ(first.digest.size(), 16U);
}

// Samples of a tensor detect swapped halves, and a changed value anywhere in a short tensor.
TEST_F(ModelIdentities, DifferIfOneTensorDiffers) {
  const ModelIdentity base = identity_of(write("base", some_tensors()));
  const auto differs = [&](const std::string& what, const NamedTensors& tensors) {
    EXPECT_FALSE(are_alike(identity_of(write("other", tensors)), base)) << what;
  };
  for (size_t i = 0; i < 3; ++i) {
    NamedTensors tensors = some_tensors();
    tensors[i].second = at::roll(tensors[i].second, tensors[i].second.numel() / 2);
    differs("values of " + tensors[i].first, tensors);
    tensors = some_tensors();
    tensors[i].first += "er";
    differs("the name of " + tensors[i].first, tensors);
    tensors = some_tensors();
    tensors[i].second = tensors[i].second.view({2, -1});
    differs("the shape of " + tensors[i].first, tensors);
    tensors = some_tensors();
    tensors[i].second = tensors[i].second.view(at::kInt);
    differs("the dtype of " + tensors[i].first, tensors);
    tensors = some_tensors();
    tensors[i].second.view(-1)[-1] = 0.5;
    differs("the last value of " + tensors[i].first, tensors);
  }
  NamedTensors fewer = some_tensors();
  fewer.pop_back();
  differs("a tensor that is missing", fewer);
}

// More than 4096 tensors share the number of bytes to read, and every tensor is read.
TEST_F(ModelIdentities, SampleEachOfManyTensors) {
  NamedTensors many;
  for (int i = 0; i < 6000; ++i)
    many.emplace_back("t" + std::to_string(i), i < 5990 ? at::full({2}, i) : at::full({4000}, i));
  const ModelIdentity base = identity_of(write("base", many));
  for (const size_t i : {0, 3000, 5995, 5999}) {
    NamedTensors other = many;
    other[i].second = other[i].second + 1;
    EXPECT_FALSE(are_alike(identity_of(write("other", other)), base)) << i;
  }
}

TEST_F(ModelIdentities, IncludeAdapters) {
  const auto with = [&](const std::string& name, const std::string& config, float value) {
    ModelPlace place = write("base", some_tensors());
    std::filesystem::create_directories(folder_ / name);
    folder_.write(name + "/adapter_config.json", config);
    const NamedTensors tensors = {{"base_model.model.short.lora_A.weight", at::full({2, 3}, value)}};
    write_safetensors(folder_ / name / "adapter_model.safetensors", tensors);
    place.adapters.push_back(folder_ / name);
    return identity_of(place);
  };
  const ModelIdentity first = with("a", R"({"r": 2, "base_model_name_or_path": "here"})", 1);
  EXPECT_EQ(first.place, std::filesystem::canonical(folder_ / "a").string());
  EXPECT_TRUE(are_alike(first, with("b", R"({"r": 2, "base_model_name_or_path": "there"})", 1)));
  EXPECT_FALSE(are_alike(first, with("c", R"({"r": 2, "base_model_name_or_path": "here"})", 2)));
  EXPECT_FALSE(are_alike(first, with("d", R"({"r": 2, "lora_alpha": 4})", 1)));
  EXPECT_FALSE(are_alike(first, identity_of(write("base", some_tensors()))));
}

}  // namespace
}  // namespace heddle::tests
