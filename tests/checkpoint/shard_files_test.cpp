// Shard files: metadata in headers, checksums, and refusals when a writer resumes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/call.h"
#include "heddle/transport/threads.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/sharded/placements.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using checkpoint::Part;
using checkpoint::ShardedReader;
using checkpoint::ShardedWriter;
using ::testing::ElementsAre;
using ::testing::Pair;
using tests::error_of;
using tests::Folder;

constexpr const char* kFirstShard = "shard-00001-model-00001-of-00001.safetensors";
constexpr const char* kSecondShard = "shard-00002-model-00001-of-00001.safetensors";

// This rank's half of a tensor. Both halves have the same shape.
Part half(int rank) {
  return {"w", at::arange(rank * 6, rank * 6 + 6, at::kFloat).view({2, 3}), {4, 3}, {rank * 2, 0}};
}

void save_halves(const fs::path& directory) {
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const std::vector<Part> parts{half(rendezvous.rank())};
    checkpoint::write_sharded(directory, "model", parts, rendezvous, "save");
  });
}

std::string read_whole(const Folder& folder) {
  return error_of(folder, [&] {
    ShardedReader(folder.path()).read({"w", at::zeros({4, 3}), {4, 3}, {0, 0}});
  });
}

TEST(ShardFiles, SayWhichBoxesTheyHold) {
  const Folder folder;
  save_halves(folder.path());
  const SafetensorsFile second(folder / kSecondShard);
  EXPECT_EQ(second.metadata().at("format"), "pt");
  const auto places = checkpoint::read_placements(second.metadata().at("heddle.boxes"));
  ASSERT_TRUE(places);
  EXPECT_THAT(*places, ElementsAre(Pair("w", checkpoint::Placement{"w", {4, 3}, {2, 0}})));
}

// The two files have the same tensor name and shape, so only the headers show that they were swapped.
TEST(ShardFiles, AreRefusedWhereTheirHeadersContradictTheManifest) {
  const Folder folder;
  save_halves(folder.path());
  EXPECT_EQ(read_whole(folder), "no error");
  fs::rename(folder / kFirstShard, folder / "other");
  fs::rename(folder / kSecondShard, folder / kFirstShard);
  fs::rename(folder / "other", folder / kSecondShard);
  EXPECT_EQ(read_whole(folder),
            std::string("error[input] FOLDER/") + kFirstShard +
                ": tensor \"w\": the file does not hold the box that manifest.json says it holds\n"
                "  hint: were files of a checkpoint swapped? copy it again, or resume from another");
}

// The hint does not suggest a download, because a checkpoint of a run has no download source.
TEST(ShardFiles, SendToAnotherCheckpointWhenCutOrDamaged) {
  const std::string hint =
      "\n  hint: the file was changed or damaged; copy it again, or resume from another checkpoint";
  const std::string at = std::string("error[input] FOLDER/") + kFirstShard + ": ";
  const Folder folder;
  save_halves(folder.path());
  folder.write(kFirstShard, "cut");
  EXPECT_EQ(read_whole(folder), at + "cut: 3 bytes, a safetensors file starts with 8 bytes of length" + hint);
  folder.write(kFirstShard, std::string("\x02\0\0\0\0\0\0\0[]", 10));
  EXPECT_EQ(read_whole(folder), at + "the header is not a JSON object" + hint);
}

TEST(ShardFiles, AreRefusedWhenTheySayNothingOfTheirBoxes) {
  const Folder folder;
  save_halves(folder.path());
  std::ostringstream bytes;
  bytes << std::ifstream(folder / kFirstShard, std::ios::binary).rdbuf();
  std::string text = bytes.str();
  text.replace(text.find("heddle.boxes"), 12, "heddle.bones");
  folder.write(kFirstShard, text);
  EXPECT_THAT(read_whole(folder), ::testing::HasSubstr("the file does not hold the box"));
  EXPECT_FALSE(checkpoint::read_placements("[1]"));
  EXPECT_FALSE(checkpoint::read_placements("{\"w\": {\"tensor\": 1}}"));
}

// Reads a tensor of 3.5 checksum ranges at offsets inside and at the borders of ranges.
TEST(ShardFiles, AreReadAndCheckedByStretches) {
  const Folder folder;
  AloneRendezvous alone;
  const int64_t count = 7 << 17, stretch = 1 << 18;  // elements
  const at::Tensor whole = at::arange(count, at::kFloat);
  const std::vector<Part> parts{{"w", whole, {count}, {0}}};
  checkpoint::write_sharded(folder.path(), "model", parts, alone, "save");
  const auto read = [&](int64_t begin, int64_t end) {
    const Part part{"w", at::zeros({end - begin}), {count}, {begin}};
    ShardedReader(folder.path()).read(part);
    EXPECT_TRUE(at::equal(part.tensor, whole.slice(0, begin, end))) << begin << " to " << end;
  };
  for (const int64_t begin : {int64_t{0}, int64_t{1}, stretch - 1, stretch, stretch + 1})
    for (const int64_t end : {2 * stretch, 2 * stretch + 1, 3 * stretch - 1, count - 1, count})
      read(begin, end);
  std::fstream file(folder / kFirstShard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-int64_t{4} * (count - 2 * stretch) - 4,
             std::ios::end);  // the last element of the second range
  file.put('x').flush();
  read(0, stretch);
  read(2 * stretch, count);
  EXPECT_THAT(error_of(folder, [&] { read(stretch, stretch + 1); }),
              ::testing::HasSubstr("the bytes are not those that were saved"));
}

// The file is truncated after its header was read. Reading through the mapping would raise SIGBUS.
TEST(ShardFiles, AreAnErrorWhenCutDuringTheRead) {
  const Folder folder;
  AloneRendezvous alone;
  const int64_t count = 1 << 19;
  const std::vector<Part> parts{{"w", at::ones({count}), {count}, {0}}, {"v", at::ones({1}), {1}, {0}}};
  checkpoint::write_sharded(folder.path(), "model", parts, alone, "save");
  ShardedReader reader(folder.path());
  reader.read({"v", at::zeros({1}), {1}, {0}});
  fs::resize_file(folder / kFirstShard, 1 << 20);
  EXPECT_THAT(
      error_of(folder,
               [&] {
                 reader.read({"w", at::zeros({count}), {count}, {0}});
               }),
      ::testing::MatchesRegex("error.io. FOLDER/.*: ends before byte [0-9]+: it was cut while in use\n"
                              "  hint: see what the system says of the disk, and resume from another copy"));
}

TEST(ShardFiles, AreWrittenAgainAndAgainByOnePlan) {
  const Folder folder;
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    std::vector<Part> parts{half(rendezvous.rank())};
    const ShardedWriter writer("model", parts, rendezvous, "plan");
    for (const float add : {0.0f, 100.0f}) {
      parts[0].tensor.add_(add);
      const fs::path directory = folder / std::to_string(static_cast<int>(add));
      fs::create_directories(directory);
      const auto told = rendezvous.exchange("told", writer.write(directory, writer.mine(parts)));
      if (rendezvous.rank() == 0) writer.write_manifest(directory, told);
    }
    parts[0].offset = {1, 0};
    EXPECT_EQ(error_of(folder, [&] { writer.mine(parts); }),
              "error[internal] checkpoint: the shards of this rank are not those that were agreed on");
  });
  for (const float add : {0.0f, 100.0f}) {
    ShardedReader reader(folder / std::to_string(static_cast<int>(add)));
    const Part part{"w", at::zeros({4, 3}), {4, 3}, {0, 0}};
    reader.read(part);
    EXPECT_TRUE(at::equal(part.tensor, at::arange(12, at::kFloat).view({4, 3}) + add));
  }
}

TEST(Checksum, IsTheSameInPiecesAndSeesEveryBitAroundItsBlocks) {
  for (const size_t length : {size_t{255}, size_t{256}, size_t{257}, size_t{700}}) {
    std::string bytes(length, 'x');
    const std::string sum = checkpoint::checksum(bytes);
    checkpoint::Checksum pieces;
    for (size_t at = 0; at < length; at += 256) pieces.add(std::string_view(bytes).substr(at, 256));
    EXPECT_EQ(pieces.digits(), sum);
    for (size_t bit = 0; bit < length * 8; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(checkpoint::checksum(bytes), sum) << bit << " of " << length;
      bytes[bit / 8] = 'x';
    }
    EXPECT_NE(checkpoint::checksum(bytes + std::string(1, '\0')), sum);
    std::swap(bytes[3], bytes[4] = 'y');
    const std::string swapped = checkpoint::checksum(bytes);
    std::swap(bytes[3], bytes[4]);
    EXPECT_NE(checkpoint::checksum(bytes), swapped);
  }
  EXPECT_EQ(checkpoint::checksum("heddle"), checkpoint::checksum(std::string("heddle")));
}

TEST(Checksum, IsTheSameWhileItCopies) {
  alignas(64) std::array<char, 1100> copy;
  for (const size_t length : {size_t{0}, size_t{255}, size_t{256}, size_t{1000}})
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{64}}) {  // streamed, copied, streamed
      std::string bytes(length, '\0');
      for (size_t at = 0; at < length; ++at) bytes[at] = static_cast<char>(at * 7 + offset);
      copy.fill('x');
      checkpoint::Checksum sum;
      sum.add_copying(bytes, copy.data() + offset);
      EXPECT_EQ(sum.digits(), checkpoint::checksum(bytes)) << length << " at " << offset;
      EXPECT_EQ(std::string_view(copy.data() + offset, length), bytes);
      EXPECT_EQ(copy[offset + length], 'x');
    }
}

}  // namespace
}  // namespace heddle
