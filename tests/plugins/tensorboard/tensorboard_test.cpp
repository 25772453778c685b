// The plugin tensorboard: its event files, read byte by byte, have the contents of training.jsonl.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// CRC32C bit by bit, as an independent implementation.
uint32_t crc32c(const std::string& bytes) {
  uint32_t sum = ~0u;
  for (const char byte : bytes) {
    sum ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0);
  }
  return ~sum;
}
uint32_t masked(const std::string& bytes) {
  const uint32_t sum = crc32c(bytes);
  return (sum >> 15 | sum << 17) + 0xA282EAD8u;
}

// Protocol Buffers' wire format, with the fields that occur.
class Message {
 public:
  explicit Message(const std::string& bytes) : bytes_(bytes) {
    while (at_ < bytes_.size()) field();
  }
  std::multimap<int, std::string> texts;
  std::map<int, uint64_t> numbers;

 private:
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.at(at_++));
      out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
  }
  uint64_t fixed(size_t size) {
    uint64_t out = 0;
    std::memcpy(&out, bytes_.substr(at_, size).data(), size);
    at_ += size;
    return out;
  }
  void field() {
    const uint64_t key = varint();
    const int number = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        numbers[number] = varint();
        break;
      case 1:
        numbers[number] = fixed(8);
        break;
      case 5:
        numbers[number] = fixed(4);
        break;
      case 2: {
        const uint64_t size = varint();
        texts.emplace(number, bytes_.substr(at_, size));
        at_ += size;
        break;
      }
      default:
        throw std::runtime_error("a wire type that event files do not have");
    }
  }
  std::string bytes_;
  size_t at_ = 0;
};

struct Event {
  int64_t step = 0;
  double time = 0;
  std::string version;
  bool restarts = false;
  std::map<std::string, float> scalars;
};

Event event_of(const std::string& bytes) {
  Message message(bytes);
  Event out;
  out.time = std::bit_cast<double>(message.numbers[1]);
  out.step = static_cast<int64_t>(message.numbers[2]);
  for (const auto& [field, text] : message.texts) {
    if (field == 3) out.version = text;
    if (field == 7) out.restarts = Message(text).numbers[1] == 1;
    if (field != 5) continue;
    const Message summary(text);
    for (const auto& [one, value] : summary.texts) {
      Message scalar(value);
      out.scalars[scalar.texts.find(1)->second] =
          std::bit_cast<float>(static_cast<uint32_t>(scalar.numbers.at(2)));
    }
  }
  return out;
}

std::vector<Event> events_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<Event> out;
  for (size_t at = 0; at < bytes.size();) {
    const std::string length = bytes.substr(at, 8);
    uint64_t size = 0;
    uint32_t sums[2];
    std::memcpy(&size, length.data(), 8);
    std::memcpy(&sums[0], bytes.data() + at + 8, 4);
    const std::string data = bytes.substr(at + 12, size);
    std::memcpy(&sums[1], bytes.data() + at + 12 + size, 4);
    EXPECT_EQ(sums[0], masked(length));
    EXPECT_EQ(sums[1], masked(data));
    out.push_back(event_of(data));
    at += 16 + size;
  }
  return out;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the lines of a metrics file as scalars of event files, with the tags of `prefix`.
std::map<int64_t, std::map<std::string, float>> lines_of(const std::filesystem::path& file,
                                                         const std::string& prefix) {
  std::map<int64_t, std::map<std::string, float>> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    for (const auto& [name, value] : record.items()) {
      if (name == "step" || name == "epoch") continue;
      if (value.is_boolean()) out[record["step"]][prefix + name] = value.get<bool>() ? 1 : 0;
      if (value.is_number()) out[record["step"]][prefix + name] = static_cast<float>(value.get<double>());
    }
  }
  return out;
}

Topology board_run(const std::string& sections, const std::string& distributed = "{strategy: single}",
                   int ranks = 1) {
  return {"run", ranks, distributed, sections};
}

TEST(TensorBoard, ComputesTheStandardsChecksum) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);  // from RFC 3720
}

TEST(TensorBoard, WritesTheContentsOfTheMetricsFiles) {
  const WholeRuns runs;
  const std::string data = (runs / "train.bin").string();
  runs.train(board_run("tensorboard: {}\nvalidation_dataset_held: {file_pattern: " + data +
                           ", seq_len: 7, limit_dataset_samples: 5}",
                       "{strategy: fsdp2}", 2),
             "run", 4);
  const auto files = event_files(runs / "run/tensorboard");
  ASSERT_THAT(files, SizeIs(1));
  const std::vector<Event> events = events_of(files.front());
  ASSERT_THAT(events, SizeIs(6));  // the version, four steps, a validation
  EXPECT_EQ(events[0].version, "brain.Event:2");
  const auto training = lines_of(runs / "run/training.jsonl", "training/");
  for (size_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(events[i].step, static_cast<int64_t>(i) - 1);
    EXPECT_GE(events[i].time, events[i - 1].time - 1);
    EXPECT_EQ(events[i].scalars, training.at(events[i].step));
  }
  EXPECT_EQ(events[5].scalars, lines_of(runs / "run/validation_held.jsonl", "validation_held/").at(3));
}

TEST(TensorBoard, StartsANewFileOnResume) {
  const WholeRuns runs;
  const std::string dir = (runs / "board").string();
  const Topology topology = board_run("tensorboard: {dir: " + dir + "}");
  runs.train(topology, "run", 4);
  runs.train(topology, "run", 6, "LATEST");
  const auto files = event_files(dir);
  ASSERT_THAT(files, SizeIs(2));
  const std::vector<Event> first = events_of(files[0]), second = events_of(files[1]);
  ASSERT_THAT(first, SizeIs(5));
  ASSERT_THAT(second, SizeIs(4));
  EXPECT_TRUE(second[1].restarts);
  EXPECT_EQ(second[1].step, 4);
  EXPECT_EQ(first[4].step, 3);
  EXPECT_EQ(second[2].step, 4);
  EXPECT_EQ(second[3].step, 5);
}

TEST(TensorBoard, IsOffWithoutTheSectionAndWithEnableFalse) {
  const WholeRuns runs;
  runs.train(board_run("tensorboard: {enable: false}"), "run", 1);
  EXPECT_THAT(event_files(runs / "run/tensorboard"), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(runs / "run/training.jsonl"));
}

}  // namespace
}  // namespace heddle::tests
