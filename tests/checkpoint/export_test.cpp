// Hugging Face exports from sharded checkpoints of any layout.
#include "lib/checkpoint/huggingface/export.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/call.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

using tests::error_of;
using tests::Folder;

at::Tensor wide_tensor() {
  return at::arange(42, at::kFloat).view({6, 7});
}
at::Tensor narrow_tensor() {
  return at::arange(5, at::kFloat).to(at::kBFloat16);
}

checkpoint::Part piece(const std::string& name, const at::Tensor& whole, int64_t dim, int64_t offset,
                       int64_t size) {
  checkpoint::Part part{name, whole.narrow(dim, offset, size), whole.sizes().vec(),
                        std::vector<int64_t>(whole.dim(), 0)};
  part.offset[dim] = offset;
  return part;
}

// Shards of four ranks: "wide" in columns on ranks 0 to 2 (rank 3 replicates rank 1), "narrow" on rank 2, and
// an empty shard on rank 0.
std::vector<checkpoint::Part> parts_of(int rank) {
  constexpr std::array<int64_t, 4> kOffset{0, 3, 5, 3}, kSize{3, 2, 2, 2};
  std::vector<checkpoint::Part> parts{piece("wide", wide_tensor(), 1, kOffset[rank], kSize[rank])};
  if (rank == 0) parts.push_back(piece("narrow", narrow_tensor(), 0, 0, 0));
  if (rank == 2) parts.push_back(piece("narrow", narrow_tensor(), 0, 0, 5));
  return parts;
}

using checkpoint::HfExport;

// Saves the shards of four ranks in folder/model and exports them. Returns each rank's error, or "" for none.
std::array<std::string, 4> export_on_four_ranks(const Folder& folder, const std::filesystem::path& directory,
                                                checkpoint::HfChoice choice = {},
                                                const checkpoint::HfOrigin& origin = {}) {
  std::array<std::string, 4> errors;
  HfExport what;
  what.sharded = folder / "model";
  what.directory = directory;
  what.origin = origin;
  what.origin.files["config.json"] = "{\"model_type\": \"llama\"}\n";
  what.choice = choice;
  std::filesystem::create_directories(what.sharded);
  ThreadWorld::run(4, [&](Rendezvous& rendezvous) {
    checkpoint::write_sharded(what.sharded, "model", parts_of(rendezvous.rank()), rendezvous, "save");
    errors[rendezvous.rank()] = error_of(folder, [&] { checkpoint::export_hf(what, rendezvous, "final"); });
  });
  return errors;
}

void expect_whole(const std::filesystem::path& directory) {
  const HfWeights weights(directory);
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"narrow", "wide"}));
  at::Tensor a = at::empty({6, 7}), b = at::empty({5}, at::kBFloat16);
  weights.read("wide", std::vector<int64_t>{0, 0}, a);
  weights.read("narrow", std::vector<int64_t>{0}, b);
  EXPECT_TRUE(at::equal(a, wide_tensor()));
  EXPECT_TRUE(at::equal(b, narrow_tensor()));
}

TEST(Export, PutsTheBoxesOfFourRanksTogether) {
  const Folder folder;
  for (const std::string& error : export_on_four_ranks(folder, folder / "out")) EXPECT_EQ(error, "no error");
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  expect_whole(folder / "out");
}

TEST(Export, CutsIntoFilesWithAnIndex) {
  const Folder folder;
  export_on_four_ranks(folder, folder / "out", {.max_file_bytes = 100});
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model-00002-of-00002.safetensors"));
  expect_whole(folder / "out");
}

TEST(Export, RestoresTheDtypesOfTheOriginal) {
  const Folder folder;
  checkpoint::HfOrigin origin;
  origin.tensors = {{"wide", {"model.safetensors", at::kBFloat16}},
                    {"narrow", {"model.safetensors", at::kFloat}}};
  export_on_four_ranks(folder, folder / "out", {}, origin);
  EXPECT_EQ(HfWeights(folder / "out").at("wide").dtype, at::kBFloat16);
  EXPECT_EQ(HfWeights(folder / "out").at("narrow").dtype, at::kFloat);
  expect_whole(folder / "out");  // small integers, which bfloat16 represents exactly
}

TEST(Export, IsTheSameFromOneWriterAndFromAll) {
  const Folder folder;
  export_on_four_ranks(folder, folder / "all");
  HfExport what;
  what.sharded = folder / "model";
  what.directory = folder / "first";
  what.writers = HfExport::Writers::first;
  ThreadWorld::run(3, [&](Rendezvous& rendezvous) { checkpoint::export_hf(what, rendezvous, "final"); });
  const auto bytes = [&](const std::string& name) {
    std::ifstream file(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_EQ(bytes("first/model.safetensors"), bytes("all/model.safetensors"));
  EXPECT_GT(bytes("first/model.safetensors").size(), 178u);
}

TEST(Export, RoundsOnceFromTheFinestValues) {
  const Folder folder;
  const at::Tensor fine = at::full({3, 2}, 1.0 / 3), coarse = fine.to(at::kBFloat16);
  const auto save = [&](const char* place, const std::string& name, const at::Tensor& values) {
    std::filesystem::create_directories(folder / place);
    const checkpoint::Part part{name, values, {3, 2}, {0, 0}};
    ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
      checkpoint::write_sharded(folder / place, place, std::span(&part, 1), rendezvous, place);
    });
  };
  save("model", "w", coarse);
  save("optim", "master.w", fine);
  HfExport what;
  what.sharded = folder / "model";
  what.finer = folder / "optim";
  what.choice.dtype = at::kFloat;
  const auto exported = [&](const char* name) {
    what.directory = folder / name;
    ThreadWorld::run(2, [&](Rendezvous& rendezvous) { checkpoint::export_hf(what, rendezvous, name); });
    at::Tensor values = at::empty({3, 2});
    HfWeights(what.directory).read("w", std::vector<int64_t>{0, 0}, values);
    return values;
  };
  EXPECT_TRUE(at::equal(exported("float"), fine));
  what.choice.dtype = at::kHalf;
  EXPECT_TRUE(at::equal(exported("half"), fine.to(at::kHalf).to(at::kFloat)));
  what.choice.dtype = std::nullopt;
  EXPECT_TRUE(at::equal(exported("same"), coarse.to(at::kFloat)));
}

TEST(Export, TellsEveryRankWhatFailedOnTheFirst) {
  const Folder folder;
  folder.write("file", "in the way");
  for (const std::string& error : export_on_four_ranks(folder, folder / "file"))
    EXPECT_EQ(error,
              "error[io] FOLDER/file: cannot be created: Not a directory\n"
              "  hint: check the path and its permissions");
}

TEST(Export, EndsWhenItsTimeIsOver) {
  const Folder folder;
  export_on_four_ranks(folder, folder / "first");
  HfExport what;
  what.sharded = folder / "model";
  what.directory = folder / "late";
  what.limit = std::chrono::duration<double>(-60);
  AloneRendezvous rendezvous;
  EXPECT_EQ(error_of(folder, [&] { checkpoint::export_hf(what, rendezvous, "late"); }),
            "error[io] FOLDER/late: the export is not done after -1 minutes\n"
            "  hint: raise checkpoint.consolidation_timeout_minutes");
  for (const double seconds : {60.0, 6e301}) {
    what.limit = std::chrono::duration<double>(seconds);
    what.directory = folder / (seconds > 60 ? "ever" : "in_time");
    checkpoint::export_hf(what, rendezvous, "in time");
    expect_whole(what.directory);
  }
}

}  // namespace
}  // namespace heddle
