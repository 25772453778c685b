// Writes files of prepared samples.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lib/data/samples/sample_file.h"

namespace heddle {

struct TestSample {
  std::vector<uint16_t> tokens;
  std::vector<TokenRun> runs;
};

// Writes a file without checksums, as the preparation script does.
inline void write_unsealed(const std::filesystem::path& file, const std::vector<TestSample>& samples,
                           uint32_t flags = 0, const std::string& description = "{\"name\": \"mine\"}") {
  std::string bytes(sizeof(SampleHeader), '\0');
  SampleHeader header;
  std::memcpy(header.magic, "HDLSMPL", 8);
  header.version = 1;
  header.header_bytes = sizeof(SampleHeader);
  header.token_bytes = 2;
  header.flags = flags;
  header.vocabulary = 100;
  header.pad = 9;
  std::vector<uint16_t> tokens;
  std::vector<uint64_t> starts{0}, run_starts{0};
  std::vector<TokenRun> runs;
  for (const TestSample& one : samples) {
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    runs.insert(runs.end(), one.runs.begin(), one.runs.end());
    starts.push_back(tokens.size());
    run_starts.push_back(runs.size());
  }
  header.samples = samples.size();
  header.tokens = tokens.size();
  header.runs = runs.size();
  const auto add = [&](SampleHeader::Section& section, const void* from, size_t count) {
    bytes.resize((bytes.size() + 63) / 64 * 64);
    section = {bytes.size(), count};
    bytes.append(static_cast<const char*>(from), count);
  };
  add(header.token_section, tokens.data(), tokens.size() * 2);
  add(header.sample_index, starts.data(), starts.size() * 8);
  add(header.run_index, run_starts.data(), run_starts.size() * 8);
  add(header.run_section, runs.data(), runs.size() * sizeof(TokenRun));
  add(header.description, description.data(), description.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ofstream(file, std::ios::binary) << bytes;
}

inline void write_samples(const std::filesystem::path& file, const std::vector<TestSample>& samples,
                          uint32_t flags = 0, const std::string& description = "{\"name\": \"mine\"}") {
  write_unsealed(file, samples, flags, description);
  seal_samples(file);
}

}  // namespace heddle
