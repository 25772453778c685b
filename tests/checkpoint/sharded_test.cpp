// Sharded checkpoints: saved in one layout, loaded in other layouts, refused when damaged.
#include "heddle/checkpoint/sharded.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <sstream>

#include "checkpoint/folder.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using checkpoint::Part;
using checkpoint::ShardedReader;
using ::testing::HasSubstr;
using tests::error_of;
using tests::Folder;

at::Tensor wide() {
  return at::arange(77, at::kFloat).view({11, 7});
}
at::Tensor narrow() {
  return at::arange(13, at::kFloat).to(at::kBFloat16);
}
at::Tensor scalar() {
  return at::full({}, 4.0, at::kFloat);
}

Part piece(const std::string& name, const at::Tensor& whole, std::vector<int64_t> offset,
           std::vector<int64_t> size) {
  at::Tensor box = whole;
  for (size_t dim = 0; dim < offset.size(); ++dim)
    box = box.narrow(static_cast<int64_t>(dim), offset[dim], size[dim]);
  return {name, box.clone(), whole.sizes().vec(), std::move(offset)};
}

using Layout = std::function<std::vector<Part>(int rank)>;

// Columns on ranks 0 and 1. Rank 2 holds the remaining columns and a replica of rank 1's columns.
std::vector<Part> columns(int rank) {
  std::vector<Part> parts{rank == 0 ? piece("wide", wide(), {0, 0}, {11, 3})
                                    : piece("wide", wide(), {0, 3}, {11, 4})};
  parts.push_back(piece("narrow", narrow(), {0}, {rank == 2 ? 13 : 0}));
  parts.push_back(piece("step", scalar(), {}, {}));
  return parts;
}

// A flat third of "wide" per rank, cut inside rows, which gives up to three boxes per rank.
std::vector<Part> flat(int rank) {
  std::vector<Part> parts;
  if (rank == 0) parts = {piece("wide", wide(), {0, 0}, {3, 7}), piece("wide", wide(), {3, 0}, {1, 5})};
  if (rank == 1)
    parts = {piece("wide", wide(), {3, 5}, {1, 2}), piece("wide", wide(), {4, 0}, {3, 7}),
             piece("wide", wide(), {7, 0}, {1, 2})};
  if (rank == 2) parts = {piece("wide", wide(), {7, 2}, {1, 5}), piece("wide", wide(), {8, 0}, {3, 7})};
  parts.push_back(piece("narrow", narrow(), {rank * 4}, {rank == 2 ? 5 : 4}));
  parts.push_back(piece("step", scalar(), {}, {}));
  return parts;
}

std::vector<Part> whole(int) {
  return {piece("wide", wide(), {0, 0}, {11, 7}), piece("narrow", narrow(), {0}, {13}),
          piece("step", scalar(), {}, {})};
}

void save(const fs::path& directory, int ranks, const Layout& layout) {
  fs::create_directories(directory);
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    checkpoint::write_sharded(directory, "model", layout(rendezvous.rank()), rendezvous, "save");
  });
}

// Checks that every rank of `layout` loads what it would have saved.
void expect_readable(const fs::path& directory, int ranks, const Layout& layout) {
  for (int rank = 0; rank < ranks; ++rank) {
    ShardedReader reader(directory);
    for (const Part& want : layout(rank)) {
      Part got = want;
      got.tensor = at::full_like(want.tensor, -1);
      reader.read(got);
      EXPECT_TRUE(at::equal(got.tensor, want.tensor)) << want.name << " on rank " << rank;
    }
  }
}

std::string bytes_of(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

constexpr const char* kFirst = "shard-00001-model-00001-of-00001.safetensors";
constexpr const char* kSecond = "shard-00002-model-00001-of-00001.safetensors";

std::string sharded_refusal(const Folder& folder) {
  return error_of(folder, [&] { expect_readable(folder.path(), 1, whole); });
}

TEST(Sharded, IsReadByEveryLayoutWhateverWroteIt) {
  const Folder folder;
  const std::array<std::pair<int, Layout>, 3> layouts{{{3, columns}, {3, flat}, {1, whole}}};
  for (size_t from = 0; from < layouts.size(); ++from) {
    const fs::path directory = folder / std::to_string(from);
    save(directory, layouts[from].first, layouts[from].second);
    for (const auto& [ranks, layout] : layouts) expect_readable(directory, ranks, layout);
  }
}

TEST(Sharded, WritesEachBoxOnceOnTheHolderWithTheLeastToWrite) {
  const Folder folder;
  save(folder.path(), 3, columns);
  EXPECT_THAT(SafetensorsFile(folder / kFirst).tensors(), ::testing::ElementsAre(::testing::Key("wide")));
  EXPECT_THAT(SafetensorsFile(folder / kSecond).tensors(), ::testing::ElementsAre(::testing::Key("wide")));
  const SafetensorsFile third(folder / "shard-00003-model-00001-of-00001.safetensors");
  EXPECT_THAT(third.tensors(), ::testing::ElementsAre(::testing::Key("narrow"), ::testing::Key("step")));
}

TEST(Sharded, ConvertsTheDtypeOfWhatItReads) {
  const Folder folder;
  save(folder.path(), 1, whole);
  ShardedReader reader(folder.path());
  const Part part{"narrow", at::empty({5}, at::kFloat), {13}, {4}};
  reader.read(part);
  EXPECT_TRUE(at::equal(part.tensor, at::arange(4, 9, at::kFloat)));
}

TEST(Sharded, SeesAFlippedByteWhereItReadsAndNowhereElse) {
  const Folder folder;
  save(folder.path(), 3, columns);
  std::string bytes = bytes_of(folder / kSecond);
  bytes.back() ^= 1;
  folder.write(kSecond, bytes);
  EXPECT_EQ(sharded_refusal(folder),
            std::string("error[input] FOLDER/") + kSecond +
                ": tensor \"wide\": the bytes are not those that were saved\n"
                "  hint: the file was changed or damaged; copy it again, or resume from "
                "another checkpoint");
  ShardedReader reader(folder.path());
  Part left = piece("wide", wide(), {0, 0}, {11, 3});
  left.tensor = at::zeros({11, 3});
  reader.read(left);
  EXPECT_TRUE(at::equal(left.tensor, wide().narrow(1, 0, 3)));
}

TEST(Sharded, RefusesACutFile) {
  const Folder folder;
  save(folder.path(), 3, columns);
  const std::string bytes = bytes_of(folder / kSecond);
  folder.write(kSecond, bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(sharded_refusal(folder),
              HasSubstr(std::string("error[input] FOLDER/") + kSecond + ": tensor \"wide\""));
}

TEST(Sharded, RefusesSwappedFiles) {
  const Folder folder;
  save(folder / "a", 3, flat);
  fs::rename(folder / "a" / kFirst, folder / "a/other");
  fs::rename(folder / "a" / kSecond, folder / "a" / kFirst);
  fs::rename(folder / "a/other", folder / "a" / kSecond);
  EXPECT_THAT(error_of(folder, [&] { expect_readable(folder / "a", 1, whole); }),
              HasSubstr("the file does not hold the box that manifest.json says it holds\n"
                        "  hint: were files of a checkpoint swapped?"));
}

TEST(Sharded, RefusesANewerManifestWithBothVersions) {
  const Folder folder;
  save(folder.path(), 1, whole);
  std::string text = bytes_of(folder / "manifest.json");
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  folder.write("manifest.json", text);
  EXPECT_EQ(sharded_refusal(folder),
            "error[input] FOLDER/manifest.json: has version 2, this heddle reads version 1\n"
            "  hint: read it with the heddle that wrote it, or a newer one");
}

TEST(Sharded, RefusesAManifestThatWasChanged) {
  const Folder folder;
  save(folder.path(), 3, columns);
  const std::string text = bytes_of(folder / "manifest.json");
  for (size_t at = 0; at < text.size(); at += 7) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    if (changed[at] == text[at] || std::isspace(static_cast<unsigned char>(text[at]))) continue;
    folder.write("manifest.json", changed);
    EXPECT_THAT(sharded_refusal(folder), HasSubstr("error[input] FOLDER/manifest.json: ")) << "byte " << at;
  }
  folder.write("manifest.json", "[]");
  EXPECT_THAT(sharded_refusal(folder), HasSubstr("is not a manifest of a sharded checkpoint"));
  fs::remove(folder / "manifest.json");
  EXPECT_EQ(sharded_refusal(folder),
            "error[input] FOLDER/manifest.json: cannot be read\n"
            "  hint: is this a checkpoint that was saved to the end?");
}

TEST(Sharded, RefusesAnotherModel) {
  const Folder folder;
  save(folder.path(), 1, whole);
  ShardedReader reader(folder.path());
  EXPECT_EQ(error_of(folder,
                     [&] {
                       reader.read({"bias", at::empty({2}), {2}, {0}});
                     }),
            "error[input] FOLDER/manifest.json: holds no tensor \"bias\"\n"
            "  hint: is this the checkpoint of another model, or of a run whose freeze_config or adapters "
            "were others?");
  EXPECT_EQ(error_of(folder,
                     [&] {
                       reader.read({"narrow", at::empty({2}), {12}, {0}});
                     }),
            "error[input] FOLDER/manifest.json: tensor \"narrow\" has the shape [13], this run needs [12]\n"
            "  hint: is this the checkpoint of another model?");
}

TEST(Sharded, FailsOnEveryRankWhereOneCannotWrite) {
  const Folder folder;
  fs::create_directories(folder / kSecond);  // blocks the directory of rank 1
  std::array<std::string, 3> errors;
  ThreadWorld::run(3, [&](Rendezvous& rendezvous) {
    errors[rendezvous.rank()] = error_of(folder, [&] {
      checkpoint::write_sharded(folder.path(), "model", columns(rendezvous.rank()), rendezvous, "save");
    });
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr(std::string("error[io] FOLDER/") + kSecond +
                                 ": is there and is not a regular file"));
  EXPECT_FALSE(fs::exists(folder / "manifest.json"));
}

TEST(Sharded, RefusesToWriteWhatIsNotWhole) {
  const Folder folder;
  EXPECT_EQ(error_of(folder,
                     [&] {
                       save(folder.path(), 1, [](int) {
                         return std::vector<Part>{piece("wide", wide(), {0, 0}, {11, 3})};
                       });
                     }),
            "error[internal] checkpoint: the shards of \"wide\" hold 33 numbers, the whole has 77");
}

TEST(Parts, HaveTheShardsBoxAndAPrefix) {
  Shard shard;
  shard.name = "w";
  shard.tensor = at::zeros({2, 3});
  shard.shape = {4, 3};
  shard.offset = {2, 0};
  const checkpoint::Part part = checkpoint::part_of(shard, at::ones({2, 3}), "exp_avg.");
  EXPECT_EQ(part.name, "exp_avg.w");
  EXPECT_EQ(part.shape, shard.shape);
  EXPECT_EQ(part.offset, shard.offset);
  EXPECT_THAT(tests::thrown_by([&] { checkpoint::part_of(shard, at::ones({3}), "step."); }),
              HasSubstr("'step.w' is [3], and the shard beside it is [2, 3]"));
}

}  // namespace
}  // namespace heddle
