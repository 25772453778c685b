// Balanced assignment of boxes to the ranks that write them.
#include "lib/checkpoint/sharded/assign_writers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using checkpoint::Held;
using checkpoint::Part;
using checkpoint::WritePlan;
using ::testing::ElementsAre;

const std::vector<int> kAll{0, 1, 2, 3, 4, 5, 6, 7}, kEven{0, 2, 4, 6}, kOdd{1, 3, 5, 7};

// Golden of Megatron: sharded boxes stay on their ranks, boxes replicated over half of the ranks go to ranks
// 0 to 3, boxes replicated over all ranks follow, largest first.
TEST(AssignWriters, GivesEachBoxToTheLeastLoadedOfItsHolders) {
  std::vector<Held> boxes;
  for (int rank = 0; rank < 8; ++rank) boxes.push_back({100, {rank}});
  boxes.insert(boxes.end(), {{40, kEven}, {40, kOdd}, {40, kEven}, {40, kOdd}});
  boxes.insert(boxes.end(), {{20, kAll}, {30, kAll}, {10, kAll}});
  EXPECT_THAT(checkpoint::assign_writers(boxes, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 5, 4, 6));
}

TEST(AssignWriters, CutsOnlyWhatSeveralHoldAndWhatIsLarge) {
  const uint64_t mib = 1 << 20;
  EXPECT_EQ(checkpoint::cuts({64 * mib, {3}}, 1000, 128 * mib, 8), 1);
  EXPECT_EQ(checkpoint::cuts({4 * mib, kAll}, 1000, 128 * mib, 8), 1);
  EXPECT_EQ(checkpoint::cuts({64 * mib, kAll}, 1000, 128 * mib, 8), 16);
  EXPECT_EQ(checkpoint::cuts({64 * mib, kAll}, 5, 128 * mib, 8), 5);
  EXPECT_EQ(checkpoint::cuts({64 * mib, kAll}, 1000, 8192 * mib, 8), 1);
}

// A model on meta as each data-parallel rank holds it. The embedding has half of the elements.
std::vector<Part> replicated_model() {
  std::vector<Part> parts;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    const std::vector<int64_t> origin(shape.size(), 0);
    parts.push_back({name, at::empty(shape, at::kMeta), shape, origin});
  };
  add("model.embed_tokens.weight", {32000, 1024});
  for (int layer = 0; layer < 16; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    add(name + ".input_layernorm.weight", {1024});
    for (const char* which : {"q", "k"}) add(name + ".self_attn." + which + "_proj.weight", {1024, 1024});
  }
  return parts;
}

TEST(AssignWriters, LetsReplicasWriteAsMuchAsOneAnotherDespiteAHugeEmbedding) {
  const std::string one = checkpoint::describe(replicated_model());
  for (const size_t world : {size_t{2}, size_t{3}, size_t{7}}) {
    const WritePlan plan = checkpoint::plan_writing(std::vector<std::string>(world, one));
    std::vector<int64_t> load(world, 0);
    for (const auto& box : plan.boxes) load[box.rank] += box.box.numel();
    const int64_t total = std::accumulate(load.begin(), load.end(), int64_t{0});
    EXPECT_EQ(total, 32000 * 1024 + 16 * (1024 + 2 * 1024 * 1024));
    for (const int64_t numbers : load)
      EXPECT_NEAR(static_cast<double>(numbers) * static_cast<double>(world) / static_cast<double>(total), 1,
                  0.1);
  }
}

TEST(AssignWriters, SaysLittleOfThousandsOfTensors) {
  std::vector<Part> parts;
  for (const char* kind : {"exp_avg.", "exp_avg_sq.", "step.", "master."})
    for (int layer = 0; layer < 126; ++layer)
      for (const char* name :
           {"input_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "post_attention_layernorm",
            "self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj", "self_attn.v_proj"})
        parts.push_back({kind + ("model.layers." + std::to_string(layer)) + "." + name + ".weight",
                         at::empty({128, 16384}, at::kMeta),
                         {16384, 16384},
                         {128 * 7, 0}});
  EXPECT_GT(parts.size(), 4500u);
  EXPECT_LT(checkpoint::describe(parts).size(), 80 * parts.size());
}

// Three ranks replicate a tensor that is large enough to be split, with a row count that 3 does not divide.
TEST(AssignWriters, WritesACutBoxOnceAndWhole) {
  const tests::Folder folder;
  const at::Tensor whole = at::arange(int64_t{1021} * 4099, at::kFloat).view({1021, 4099});
  const auto parts = [&] { return std::vector<Part>{{"w", whole, {1021, 4099}, {0, 0}}}; };
  ThreadWorld::run(3, [&](Rendezvous& rendezvous) {
    checkpoint::write_sharded(folder.path(), "model", parts(), rendezvous, "save");
  });
  uintmax_t bytes = 0;
  for (const char* rank : {"1", "2", "3"}) {
    const auto one =
        fs::file_size(folder / ("shard-0000" + std::string(rank) + "-model-00001-of-00001.safetensors"));
    EXPECT_GT(one, whole.nbytes() / 5) << "rank " << rank;
    bytes += one;
  }
  EXPECT_LE(bytes, whole.nbytes() + 3 * 4096);  // each file pads its header to a page
  checkpoint::ShardedReader reader(folder.path());
  const Part read{"w", at::zeros({1000, 4001}), {1021, 4099}, {17, 98}};
  reader.read(read);
  EXPECT_TRUE(at::equal(read.tensor, whole.narrow(0, 17, 1000).narrow(1, 98, 4001)));
}

}  // namespace
}  // namespace heddle
