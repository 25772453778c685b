// Frames and messages are written by hand: the few fields that TensorBoard reads of a scalar.
#include "event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>

#include "heddle/base/text_file.h"

namespace heddle::tensorboard {
namespace {

constexpr const char* kPrefix = "events.out.tfevents.";

uint32_t checksum(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
      out[i] = value;
    }
    return out;
  }();
  uint32_t sum = ~0u;
  for (const char byte : bytes) sum = table[(sum ^ static_cast<uint8_t>(byte)) & 0xFF] ^ sum >> 8;
  return ~sum;
}

// Little-endian, as all of TFRecord and Protocol Buffers.
template <class T>
std::string fixed(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  return out;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(int field, Wire wire) {
  return varint(static_cast<uint64_t>(field << 3 | wire));
}
std::string bytes(int field, const std::string& value) {
  return key(field, kBytes) + varint(value.size()) + value;
}

// Event: wall_time 1, step 2.
std::string event(double time, int64_t step) {
  std::string out = key(1, kFixed64) + fixed(std::bit_cast<uint64_t>(time));
  if (step != 0) out += key(2, kVarint) + varint(static_cast<uint64_t>(step));
  return out;
}

const std::string kKey = "tensorboard.dir";

// TensorBoard reads the files of a directory in the order of their names.
int64_t seconds_after(const std::filesystem::path& directory) {
  int64_t out = std::time(nullptr);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t there = 0;
    std::from_chars(name.data() + std::strlen(kPrefix), name.data() + name.size(), there);
    out = std::max(out, there + 1);
  }
  return out;
}

}  // namespace

uint32_t masked_checksum(const std::string& text) {
  return std::rotr(checksum(text), 15) + 0xA282EAD8u;
}

EventFile::EventFile(const std::filesystem::path& directory) {
  text_file::make_directory(directory, kKey);
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  for (int64_t seconds = seconds_after(directory); descriptor_ < 0; ++seconds) {
    char time[24];
    std::snprintf(time, sizeof(time), "%010lld", static_cast<long long>(seconds));
    path_ = directory / (std::string(kPrefix) + time + "." + host.data() + "." + std::to_string(getpid()));
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0 && errno != EEXIST) throw text_file::cannot_write(path_, errno, kKey);
  }
  append(event(static_cast<double>(std::time(nullptr)), 0) + bytes(3, "brain.Event:2"));  // file_version
}

EventFile::~EventFile() {
  close(descriptor_);
}

// SessionLog, field 7 of Event: status 1 is START.
void EventFile::restart(double time, int64_t step) {
  append(event(time, step) + bytes(7, key(1, kVarint) + varint(1)));
}

// Summary, field 5 of Event: values 1, each with tag 1 and simple_value 2, a float.
void EventFile::add(double time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += bytes(
        1, bytes(1, tag) + key(2, kFixed32) + fixed(std::bit_cast<uint32_t>(static_cast<float>(value))));
  append(event(time, step) + bytes(5, summary));
}

void EventFile::append(const std::string& event) {
  const std::string length = fixed(static_cast<uint64_t>(event.size()));
  const std::string frame = length + fixed(masked_checksum(length)) + event + fixed(masked_checksum(event));
  text_file::write_all(descriptor_, frame, path_, kKey);
}

}  // namespace heddle::tensorboard
