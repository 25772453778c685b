// Exports from ranks that hold boxes of any layout, read back as one model.
#include "heddle/checkpoint/export.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "core/checkpoint/folder.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/threads.h"

namespace heddle {
namespace {

using testing::error_of;
using testing::Folder;

// A stage that only owns shards.
class Owner : public ParallelStage {
 public:
  explicit Owner(std::vector<Shard> shards) : shards_(std::move(shards)) {}
  Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
  void unshard() override {}
  void reshard() override {}
  void expect_last_backward() override {}
  void finish_gradients() override {}
  std::span<Shard> owned() override { return shards_; }
  void parameters_changed() override {}

 private:
  std::vector<Shard> shards_;
};

at::Tensor wide() {
  return at::arange(42, at::kFloat).view({6, 7});
}
at::Tensor narrow() {
  return at::arange(5, at::kFloat).to(at::kBFloat16);
}

Shard piece(const std::string& name, const at::Tensor& whole, int64_t dim, int64_t offset, int64_t size) {
  Shard shard{name,
              whole.narrow(dim, offset, size).clone(),
              whole.sizes().vec(),
              std::vector<int64_t>(whole.dim(), 0),
              {},
              {},
              {}};
  shard.offset[dim] = offset;
  return shard;
}

// Four ranks: "wide" in columns on ranks 0 to 2 (rank 3: a replica of rank 1's), "narrow" on rank 2, with an
// empty shard on rank 0.
Stages stages_of(int rank) {
  constexpr std::array<int64_t, 4> kOffset{0, 3, 5, 3}, kSize{3, 2, 2, 2};
  std::vector<Shard> shards{piece("wide", wide(), 1, kOffset[rank], kSize[rank])};
  if (rank == 0) shards.push_back(piece("narrow", narrow(), 0, 0, 0));
  if (rank == 2) shards.push_back(piece("narrow", narrow(), 0, 0, 5));
  Stages stages;
  stages.push_back(std::make_unique<Owner>(std::move(shards)));
  return stages;
}

void export_on_four_ranks(const std::filesystem::path& directory, int64_t max_shard_bytes) {
  ThreadWorld::run(4, [&](Rendezvous& meeting) {
    Stages stages = stages_of(meeting.rank());
    const DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 4}}, meeting, "export");
    checkpoint::export_hf(stages, mesh,
                          {directory, "{\"model_type\": \"llama\"}\n", max_shard_bytes, "final"});
  });
}

void expect_whole(const std::filesystem::path& directory) {
  const HfWeights weights(directory);
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"narrow", "wide"}));
  at::Tensor a = at::empty({6, 7}), b = at::empty({5}, at::kBFloat16);
  weights.read("wide", std::vector<int64_t>{0, 0}, a);
  weights.read("narrow", std::vector<int64_t>{0}, b);
  EXPECT_TRUE(at::equal(a, wide()));
  EXPECT_TRUE(at::equal(b, narrow()));
  EXPECT_EQ(weights.at("narrow").dtype, at::kBFloat16);
}

TEST(Export, PutsTheBoxesOfFourRanksTogether) {
  const Folder folder;
  export_on_four_ranks(folder / "out", 1 << 20);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  expect_whole(folder / "out");
}

TEST(Export, CutsIntoFilesWithAnIndexAndReplacesAnOlderExport) {
  const Folder folder;
  export_on_four_ranks(folder / "out", 100);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  expect_whole(folder / "out");
  export_on_four_ranks(folder / "out", 1 << 20);
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  expect_whole(folder / "out");
}

TEST(Export, TellsEveryRankWhatFailedOnTheFirst) {
  const Folder folder;
  folder.write("file", "in the way");
  std::array<std::string, 4> errors;
  ThreadWorld::run(4, [&](Rendezvous& meeting) {
    Stages stages = stages_of(meeting.rank());
    const DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 4}}, meeting, "export");
    errors[meeting.rank()] = error_of(folder, [&] {
      checkpoint::export_hf(stages, mesh, {folder / "file", "{}", 1 << 20, "final"});
    });
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error,
              "error[io] FOLDER/file: cannot be created: Not a directory\n"
              "  hint: check the path and its permissions");
}

TEST(Export, RefusesShardsThatDoNotMakeAWhole) {
  const Folder folder;
  std::string error;
  ThreadWorld::run(1, [&](Rendezvous& meeting) {
    Stages stages = stages_of(0);
    const DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 1}}, meeting, "export");
    error = error_of(folder, [&] {
      checkpoint::export_hf(stages, mesh, {folder / "out", "{}", 1 << 20, "final"});
    });
  });
  EXPECT_EQ(error, "error[internal] checkpoint: the shards of \"wide\" hold 18 numbers, the whole has 42");
}

}  // namespace
}  // namespace heddle
