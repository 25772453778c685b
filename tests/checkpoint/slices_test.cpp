// A rank reads only its slice of a file. The tests count touched pages and bytes
// read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>

#include "checkpoint/folder.h"
#include "checkpoint/write_safetensors.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/call.h"
#include "lib/checkpoint/sharded/sharded_source.h"

namespace heddle {
namespace {

using tests::Folder;

constexpr int64_t kRows = 8192, kColumns = 1024;
constexpr uint64_t kWhole = kRows * kColumns * 4;  // bytes

// Returns the resident bytes of this process's mappings of files under `place`.
uint64_t touched(const std::filesystem::path& place) {
  std::ifstream smaps("/proc/self/smaps");
  uint64_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.find(place.string()) != std::string::npos;
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (inside && words >> key >> kib && key == "Rss:") total += kib * 1024;
  }
  return total;
}

// Returns the bytes that this process has read by system calls.
uint64_t read_by_calls() {
  std::ifstream counts("/proc/self/io");
  std::string key;
  uint64_t bytes = 0;
  counts >> key >> bytes;
  EXPECT_EQ(key, "rchar:");
  return bytes;
}

at::Tensor values() {
  return at::arange(kRows * kColumns, at::kFloat).view({kRows, kColumns});
}

// Returns a shard with the third quarter of the rows.
Shard third_quarter(at::ScalarType dtype) {
  Shard shard;
  shard.name = "w";
  shard.shape = {kRows, kColumns};
  shard.offset = {kRows / 2, 0};
  shard.tensor = at::empty({kRows / 4, kColumns}, dtype);
  return shard;
}

void expect_a_quarter(const Folder& folder, const ParameterSource& source) {
  EXPECT_LE(touched(folder.path()), kWhole / 8);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Shard shard = third_quarter(dtype);
    const uint64_t before = read_by_calls();
    ASSERT_TRUE(source(shard));
    const uint64_t read = read_by_calls() - before + touched(folder.path());
    EXPECT_TRUE(at::equal(shard.tensor, values().narrow(0, kRows / 2, kRows / 4).to(dtype)));
    EXPECT_GE(read, kWhole / 4);
    EXPECT_LE(read, kWhole * 3 / 8);  // the kernel faults in blocks of up to 2 MiB
  }
}

TEST(Slices, AreTheOnlyReadsOfAHuggingFaceDirectory) {
  const Folder folder;
  tests::write_safetensors(folder / "model.safetensors",
                           std::vector<std::pair<std::string, at::Tensor>>{{"w", values()}});
  expect_a_quarter(folder, checkpoint::hf_source(folder.path(), std::make_shared<HfWeights>(folder.path())));
}

TEST(Slices, AreTheOnlyReadsOfAShardedModel) {
  const Folder folder;
  AloneRendezvous rendezvous;
  const checkpoint::Part whole{"w", values(), {kRows, kColumns}, {0, 0}};
  checkpoint::write_sharded(folder.path(), "model", std::span(&whole, 1), rendezvous, "save");
  expect_a_quarter(folder, checkpoint::sharded_source(folder.path(), {}));
}

}  // namespace
}  // namespace heddle
