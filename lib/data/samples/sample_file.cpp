// Reads and checks a file of prepared samples.
#include "lib/data/samples/sample_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "heddle/base/error.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {
namespace {

constexpr std::string_view kSampleMagic{"HDLSMPL", 8};
constexpr uint32_t kSampleVersion = 1;
constexpr uint64_t kAlignment = 64;
constexpr size_t kSigned = offsetof(SampleHeader, header_checksum);

std::string_view bytes_in(std::string_view file, SampleHeader::Section section) {
  return file.substr(section.offset, section.bytes);
}

uint64_t checksum_of(std::string_view bytes) {
  return std::stoull(checkpoint::checksum(bytes), nullptr, 16);
}

std::array<SampleHeader::Section, 5> sections_of(const SampleHeader& header) {
  return {header.token_section, header.sample_index, header.run_index, header.run_section,
          header.description};
}

// The index and the runs are contiguous.
std::string_view indices_in(std::string_view file, const SampleHeader& header) {
  return file.substr(header.sample_index.offset,
                     header.run_section.offset + header.run_section.bytes - header.sample_index.offset);
}

template <class T>
std::span<const T> values_in(std::string_view file, SampleHeader::Section section) {
  return {reinterpret_cast<const T*>(file.data() + section.offset), section.bytes / sizeof(T)};
}

int64_t largest_in(std::string_view file, const SampleHeader& header) {
  const auto most = [&](auto tokens) -> int64_t {
    return tokens.empty() ? -1 : static_cast<int64_t>(*std::max_element(tokens.begin(), tokens.end()));
  };
  return header.token_bytes == 2 ? most(values_in<uint16_t>(file, header.token_section))
                                 : most(values_in<uint32_t>(file, header.token_section));
}

// Checks one file.
class SampleCheck {
 public:
  SampleCheck(const std::filesystem::path& path, std::string_view file) : path_(path), file_(file) {}

  // is_sealed: a finished file; else as the preparation writes it.
  SampleHeader header(bool is_sealed) const {
    SampleHeader header;
    if (file_.size() < sizeof(header))
      refuse("is truncated: it has " + std::to_string(file_.size()) + " bytes");
    std::memcpy(&header, file_.data(), sizeof(header));
    if (std::string_view(header.magic, 8) != kSampleMagic)
      throw Error(ErrorCode::input, path_.string(), "is not a file of prepared samples",
                  "use a file NAME.samples of heddle prepare");
    if (header.version != kSampleVersion)
      refuse("has version " + std::to_string(header.version) + "; this heddle reads version " +
             std::to_string(kSampleVersion));
    if (is_sealed && header.header_checksum == 0) refuse("is not finished");
    if (is_sealed && checksum_of(file_.substr(0, kSigned)) != header.header_checksum)
      refuse("is damaged: the checksum of its header differs");
    check_sizes(header);
    check_layout(header);
    return header;
  }

  void check_content(const SampleHeader& header) const {
    if (checksum_of(indices_in(file_, header)) != header.index_checksum)
      refuse("is damaged: the checksum of its indices differs");
    if (checksum_of(bytes_in(file_, header.description)) != header.description_checksum)
      refuse("is damaged: the checksum of its description differs");
    check_indices(header);
  }

  void check_tokens(const SampleHeader& header) const {
    const int64_t largest = largest_in(file_, header);
    if (largest >= header.vocabulary)
      refuse("has the token " + std::to_string(largest) + ", but its vocabulary has " +
             std::to_string(header.vocabulary) + " tokens");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::input, path_.string(), what,
                "remove the file, and run heddle prepare to make it again");
  }

 private:
  void check_sizes(const SampleHeader& header) const {
    constexpr uint64_t kMost = uint64_t{1} << 48;
    const bool is_sound = header.header_bytes == sizeof(SampleHeader) &&
                          (header.token_bytes == 2 || header.token_bytes == 4) && header.flags < 8 &&
                          header.samples < kMost && header.tokens < kMost && header.runs < kMost;
    if (!is_sound || header.token_section.bytes != header.tokens * header.token_bytes ||
        header.sample_index.bytes != (header.samples + 1) * sizeof(uint64_t) ||
        header.run_index.bytes != (header.samples + 1) * sizeof(uint64_t) ||
        header.run_section.bytes != header.runs * sizeof(TokenRun))
      refuse("is damaged: the sizes in its header do not agree");
  }

  // Each section starts at the next multiple of 64, without other bytes in between.
  void check_layout(const SampleHeader& header) const {
    uint64_t end = sizeof(SampleHeader);
    for (const auto& section : sections_of(header)) {
      const uint64_t begin = (end + kAlignment - 1) / kAlignment * kAlignment;
      if (section.offset != begin || section.bytes > file_.size() || begin > file_.size() - section.bytes)
        refuse("is truncated or damaged: it has " + std::to_string(file_.size()) +
               " bytes, which its header contradicts");
      const std::string_view between = file_.substr(end, begin - end);
      if (between.find_first_not_of('\0') != std::string_view::npos)
        refuse("is damaged: there are bytes between its sections");
      end = begin + section.bytes;
    }
    if (end != file_.size()) refuse("is damaged: there are bytes after its end");
  }

  void check_indices(const SampleHeader& header) const {
    const auto starts = values_in<uint64_t>(file_, header.sample_index);
    const auto run_starts = values_in<uint64_t>(file_, header.run_index);
    const auto runs = values_in<TokenRun>(file_, header.run_section);
    if (starts.front() != 0 || starts.back() != header.tokens || run_starts.front() != 0 ||
        run_starts.back() != header.runs)
      refuse("is damaged: its indices do not cover its tokens");
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      if (starts[i + 1] < starts[i] || starts[i + 1] > header.tokens ||
          starts[i + 1] - starts[i] > std::numeric_limits<uint32_t>::max() ||
          run_starts[i + 1] < run_starts[i] || run_starts[i + 1] > header.runs)
        refuse("is damaged: the indices of sample " + std::to_string(i) + " do not rise");
      uint64_t end = 0;
      for (const TokenRun& run : runs.subspan(run_starts[i], run_starts[i + 1] - run_starts[i])) {
        if (run.begin < end || run.end <= run.begin || run.end > starts[i + 1] - starts[i])
          refuse("is damaged: a run of sample " + std::to_string(i) + " is not inside it");
        end = run.end;
      }
    }
  }

  const std::filesystem::path& path_;
  std::string_view file_;
};

std::string_view text_of(const MappedFile& mapped) {
  return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
}

}  // namespace

SampleFile::SampleFile(const std::filesystem::path& file) : path_(file), mapped_(file) {
  const std::string_view bytes = text_of(mapped_);
  const SampleCheck check(path_, bytes);
  header_ = check.header(true);
  check.check_content(header_);
  starts_ = values_in<uint64_t>(bytes, header_.sample_index);
  run_starts_ = values_in<uint64_t>(bytes, header_.run_index);
  runs_ = values_in<TokenRun>(bytes, header_.run_section);
}

std::string SampleFile::description() const {
  return std::string(bytes_in(text_of(mapped_), header_.description));
}

int64_t SampleFile::tokens_of(int64_t sample) const {
  const auto at = static_cast<size_t>(sample);
  return static_cast<int64_t>(starts_[at + 1] - starts_[at]);
}

std::span<const TokenRun> SampleFile::runs_of(int64_t sample) const {
  const auto at = static_cast<size_t>(sample);
  return runs_.subspan(run_starts_[at], run_starts_[at + 1] - run_starts_[at]);
}

void SampleFile::read(int64_t sample, std::span<int64_t> tokens, int64_t first) const {
  const char* from =
      text_of(mapped_).data() + header_.token_section.offset +
      (starts_[static_cast<size_t>(sample)] + static_cast<uint64_t>(first)) * header_.token_bytes;
  if (header_.token_bytes == 2)
    std::copy_n(reinterpret_cast<const uint16_t*>(from), tokens.size(), tokens.begin());
  else
    std::copy_n(reinterpret_cast<const uint32_t*>(from), tokens.size(), tokens.begin());
}

int64_t SampleFile::largest_token() const {
  return largest_in(text_of(mapped_), header_);
}

void SampleFile::verify_tokens() const {
  const std::string_view bytes = text_of(mapped_);
  if (checksum_of(bytes_in(bytes, header_.token_section)) != header_.token_checksum)
    SampleCheck(path_, bytes).refuse("is damaged: the checksum of its tokens differs");
}

void seal_samples(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes = text_of(mapped);
  const SampleCheck check(file, bytes);
  SampleHeader header = check.header(false);
  check.check_tokens(header);
  header.token_checksum = checksum_of(bytes_in(bytes, header.token_section));
  header.index_checksum = checksum_of(indices_in(bytes, header));
  header.description_checksum = checksum_of(bytes_in(bytes, header.description));
  check.check_content(header);
  header.header_checksum = checksum_of({reinterpret_cast<const char*>(&header), kSigned});
  const int out = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written =
      out >= 0 && pwrite(out, &header, sizeof(header), 0) == sizeof(header) && fsync(out) == 0;
  const int failed = errno;
  if (out >= 0) close(out);
  if (!written)
    throw Error(ErrorCode::io, file.string(), std::string("cannot be written: ") + std::strerror(failed));
}

bool is_sample_file(const std::filesystem::path& file) {
  std::array<char, 8> magic{};
  std::ifstream in(file, std::ios::binary);
  return in.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) == kSampleMagic;
}

}  // namespace heddle
