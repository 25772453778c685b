// Exports from ranks that hold boxes of any layout, read back as one model.
#include "heddle/checkpoint/export.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "core/checkpoint/folder.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/threads.h"

namespace heddle {
namespace {

using testing::error_of;
using testing::Folder;

at::Tensor wide() {
  return at::arange(42, at::kFloat).view({6, 7});
}
at::Tensor narrow() {
  return at::arange(5, at::kFloat).to(at::kBFloat16);
}

checkpoint::Part piece(const std::string& name, const at::Tensor& whole, int64_t dim, int64_t offset,
                       int64_t size) {
  checkpoint::Part part{name, whole.narrow(dim, offset, size), whole.sizes().vec(),
                        std::vector<int64_t>(whole.dim(), 0)};
  part.offset[dim] = offset;
  return part;
}

// Four ranks: "wide" in columns on ranks 0 to 2 (rank 3: a replica of rank 1's), "narrow" on rank 2, with an
// empty shard on rank 0.
std::vector<checkpoint::Part> parts_of(int rank) {
  constexpr std::array<int64_t, 4> kOffset{0, 3, 5, 3}, kSize{3, 2, 2, 2};
  std::vector<checkpoint::Part> parts{piece("wide", wide(), 1, kOffset[rank], kSize[rank])};
  if (rank == 0) parts.push_back(piece("narrow", narrow(), 0, 0, 0));
  if (rank == 2) parts.push_back(piece("narrow", narrow(), 0, 0, 5));
  return parts;
}

// Saves four ranks' boxes in folder/model and exports them; the last error of each rank, "" for none.
std::array<std::string, 4> export_on_four_ranks(const Folder& folder, const std::filesystem::path& directory,
                                                int64_t max_shard_bytes) {
  std::array<std::string, 4> errors;
  const std::filesystem::path sharded = folder / "model";
  std::filesystem::create_directories(sharded);
  ThreadWorld::run(4, [&](Rendezvous& meeting) {
    checkpoint::write_sharded(sharded, "model", parts_of(meeting.rank()), meeting, "save");
    errors[meeting.rank()] = error_of(folder, [&] {
      checkpoint::export_hf({sharded, directory, "{\"model_type\": \"llama\"}\n", max_shard_bytes}, meeting,
                            "final");
    });
  });
  return errors;
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
  export_on_four_ranks(folder, folder / "out", 1 << 20);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  expect_whole(folder / "out");
}

TEST(Export, CutsIntoFilesWithAnIndexAndReplacesAnOlderExport) {
  const Folder folder;
  export_on_four_ranks(folder, folder / "out", 100);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  expect_whole(folder / "out");
  export_on_four_ranks(folder, folder / "out", 1 << 20);
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  expect_whole(folder / "out");
}

TEST(Export, TellsEveryRankWhatFailedOnTheFirst) {
  const Folder folder;
  folder.write("file", "in the way");
  for (const std::string& error : export_on_four_ranks(folder, folder / "file", 1 << 20))
    EXPECT_EQ(error,
              "error[io] FOLDER/file: cannot be created: Not a directory\n"
              "  hint: check the path and its permissions");
}

}  // namespace
}  // namespace heddle
