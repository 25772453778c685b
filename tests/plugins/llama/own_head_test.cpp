// A separate head despite tie_word_embeddings: true, in files and by an adapter.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include <fstream>

#include "checkpoint/write_safetensors.h"
#include "data/token_files.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/lora/peft_golden.h"
#include "tests/built_plugins.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char *kHead = "lm_head.weight", *kEmbedding = "model.embed_tokens.weight";

// A copy of the golden model llama_tied, whose files are changed.
class OwnHead : public ::testing::Test {
 protected:
  OwnHead() {
    fs::create_directory(model());
    fs::copy(fs::path(HEDDLE_SOURCE_DIR) / "tests/golden/llama_tied/config.json", model());
    const SafetensorsFile golden(fs::path(HEDDLE_SOURCE_DIR) / "tests/golden/llama_tied/model.safetensors");
    for (const auto& [name, stored] : golden.tensors())
      tensors_.emplace_back(name, read_tensor(golden, name));
    write();
  }

  fs::path model() const { return folder_ / "model"; }
  at::Tensor embedding() const {
    for (const auto& [name, tensor] : tensors_)
      if (name == kEmbedding) return tensor;
    return {};
  }
  void write() const { write_safetensors(model() / "model.safetensors", tensors_); }
  void add(const std::string& name, const at::Tensor& tensor) {
    tensors_.emplace_back(name, tensor);
    write();
  }

  static std::vector<std::string> warnings_of(const PreparedModel& model) {
    std::vector<std::string> out;
    warn_of_unused(model, model.make(), out);
    return out;
  }
  static at::Tensor value(const PreparedModel& model, const std::string& name) {
    for (const auto& unit : model.make())
      for (const ParameterSlot& slot : unit->parameters())
        if (slot.name == name) return box_of(model.source, name, slot.tensor->sizes().vec());
    return {};
  }
  static bool is_tied_in_export(const PreparedModel& model) {
    return checkpoint::parse_hf_json(model.origin.files.at("config.json"), "")["tie_word_embeddings"] == true;
  }

  ScratchDirectory folder_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

TEST_F(OwnHead, IsKeptIfItDiffersFromTheEmbedding) {
  at::Tensor head = embedding().clone();
  head[-1][-1] += 1;  // the last value
  add(kHead, head);
  const PreparedModel opened = open_pretrained(model(), built_plugins());
  EXPECT_TRUE(value(opened, kHead).equal(head));
  EXPECT_TRUE(value(opened, kEmbedding).equal(embedding()));
  EXPECT_FALSE(is_tied_in_export(opened));
  EXPECT_THAT(warnings_of(opened),
              ::testing::ElementsAre(
                  (model() / "config.json").string() +
                  " says tie_word_embeddings: true, but lm_head.weight and model.embed_tokens.weight have "
                  "different values in the files, and transformers 5 does not tie them. The head becomes a "
                  "separate parameter, and exports have tie_word_embeddings: false"));
}

TEST_F(OwnHead, IsTiedIfItEqualsTheEmbedding) {
  add(kHead, embedding().clone());
  const PreparedModel opened = open_pretrained(model(), built_plugins());
  EXPECT_FALSE(value(opened, kHead).defined());
  EXPECT_TRUE(is_tied_in_export(opened));
  EXPECT_THAT(warnings_of(opened), IsEmpty());
}

TEST_F(OwnHead, IsKeptWithOverriddenKeys) {
  add(kHead, embedding() + 1);
  ConfigOverrides overrides;
  std::vector<std::string> warnings;
  overrides.keys = config::read_text("{tie_word_embeddings: false, rms_norm_eps: 0.25}", "run.yaml");
  const PreparedModel opened = open_pretrained(model(), built_plugins(), overrides, warnings);
  EXPECT_TRUE(value(opened, kHead).equal(embedding() + 1));
  EXPECT_THAT(opened.idle_keys, Contains("tie_word_embeddings"));
  EXPECT_THAT(opened.idle_keys, Not(Contains("rms_norm_eps")));
}

TEST_F(OwnHead, IsReadIfTheFilesLackTheEmbedding) {
  const at::Tensor only = embedding();
  for (auto& [name, tensor] : tensors_)
    if (name == kEmbedding) name = kHead;
  write();
  const PreparedModel opened = open_pretrained(model(), built_plugins());
  EXPECT_TRUE(is_tied_in_export(opened));
  EXPECT_TRUE(value(opened, kEmbedding).equal(only));
  EXPECT_THAT(warnings_of(opened), IsEmpty());
}

TEST_F(OwnHead, StartsAsTheEmbeddingIfAnAdapterChangesOnlyTheHead) {
  const int64_t rows = embedding().size(0), columns = embedding().size(1);
  const at::Tensor a = at::randn({2, columns}), b = at::randn({rows, 2});
  const fs::path adapter = folder_ / "adapter";
  fs::create_directory(adapter);
  checkpoint::write_text(
      adapter / kAdapterConfig,
      R"({"lora_alpha": 6, "r": 2, "base_model_name_or_path": ")" + model().string() + "\"}");
  const std::vector<std::pair<std::string, at::Tensor>> layer = {
      {"base_model.model.lm_head.lora_A.weight", a}, {"base_model.model.lm_head.lora_B.weight", b}};
  write_safetensors(adapter / kAdapterWeights, layer);
  const PreparedModel opened = open_pretrained(adapter, built_plugins());
  EXPECT_TRUE(value(opened, kEmbedding).equal(embedding()));
  EXPECT_TRUE(value(opened, kHead).allclose(embedding() + at::matmul(b, a) * 3));
  EXPECT_FALSE(is_tied_in_export(opened));
  EXPECT_THAT(opened.own_head, HasSubstr("but the adapter in " + adapter.string() +
                                         " changes lm_head.weight without model.embed_tokens.weight. "));
}

TEST_F(OwnHead, IsTheBaseOfAnAdapter) {
  add(kHead, embedding() + 1);
  const int64_t rows = embedding().size(0), columns = embedding().size(1);
  const at::Tensor a = at::randn({2, columns}), b = at::randn({rows, 2});
  const fs::path adapter = folder_ / "adapter";
  fs::create_directory(adapter);
  checkpoint::write_text(
      adapter / kAdapterConfig,
      R"({"lora_alpha": 2, "r": 2, "base_model_name_or_path": ")" + model().string() + "\"}");
  const std::vector<std::pair<std::string, at::Tensor>> layer = {
      {"base_model.model.lm_head.lora_A.weight", a}, {"base_model.model.lm_head.lora_B.weight", b}};
  write_safetensors(adapter / kAdapterWeights, layer);
  EXPECT_TRUE(
      value(open_pretrained(adapter, built_plugins()), kHead).allclose(embedding() + 1 + at::matmul(b, a)));
}

TEST_F(OwnHead, UsesTheBaseOfAnAdapterInAParentDirectory) {
  const fs::path adapter = folder_ / "runs/last/model";
  fs::create_directories(adapter);
  checkpoint::write_text(adapter / kAdapterConfig,
                         R"({"r": 3, "lora_alpha": 2, "base_model_name_or_path": "model"})");
  EXPECT_EQ(find_model(adapter).weights, model());
  checkpoint::write_text(adapter / kAdapterConfig,
                         R"({"r": 3, "lora_alpha": 2, "base_model_name_or_path": "elsewhere"})");
  EXPECT_THAT(thrown_by([&] { find_model(adapter); }),
              HasSubstr("adapter_config.json: base_model_name_or_path: elsewhere does not exist"));
}

}  // namespace
}  // namespace heddle::tests
