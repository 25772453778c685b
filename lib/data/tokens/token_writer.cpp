// Writes token files.
#include "lib/data/tokens/token_writer.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/data/tokens/token_header.h"
#include "lib/data/tokens/token_note.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const fs::path& file) {
  return Error(ErrorCode::io, file.string(), std::string("cannot be written: ") + std::strerror(errno),
               "check the free disk space and the permissions of the directory");
}

fs::path partial_of(const fs::path& out) {
  fs::path partial = out;
  partial += ".part";
  return partial;
}

}  // namespace

void check_target(const fs::path& out, std::span<const Input> inputs, bool force, bool has_note) {
  std::error_code ignored;
  const fs::path target = fs::is_regular_file(out, ignored) ? fs::canonical(out, ignored) : out;
  const auto any = [](const fs::path&) { return true; };
  const std::string hint = "move it away, or choose another file: --out FILE";
  std::vector<Output> outputs = {{out, "--out", "token file", any, Output::Form::file, hint},
                                 {partial_of(target), "--out", "unfinished token file",
                                  is_unfinished_token_file, Output::Form::file, hint}};
  if (has_note)
    outputs.push_back(
        {note_beside(out), "--out", "note of heddle on a tokenizer", is_note, Output::Form::file, hint});
  refuse_outputs(outputs, inputs);
  fs::path index = out;
  index.replace_extension(".idx");
  if (fs::exists(index, ignored))
    throw Error(ErrorCode::usage, out.string(),
                "'" + index.string() + "' next to it makes readers take it for a file of Megatron's format",
                "choose another file: --out FILE");
  if (!force && fs::is_regular_file(out, ignored))
    throw Error(ErrorCode::usage, out.string(), "already exists",
                "use --force to replace it, or choose another file: --out FILE");
}

TokenWriter::TokenWriter(const fs::path& out, int width, Content content)
    : out_(checkpoint::replaceable(out)), partial_(partial_of(out_)), width_(width), content_(content) {
  file_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!file_) throw cannot_write(out_);
  write_header();
}

TokenWriter::~TokenWriter() {
  std::error_code ignored;
  if (!finished_) fs::remove(partial_, ignored);
}

void TokenWriter::write_header() {
  std::array<int32_t, kHeaderWords> header{kNanogptMagic, 1, static_cast<int32_t>(count_)};
  if (width_ == 4) {
    header[0] = kAutomodelMagic;
    header[3] = width_;
  }
  header[4] = content_ == Content::bytes ? kBytesMark : kTokensMark;
  file_.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
}

void TokenWriter::write(std::span<const uint32_t> tokens) {
  count_ += static_cast<int64_t>(tokens.size());
  if (count_ > std::numeric_limits<int32_t>::max())
    throw Error(ErrorCode::input, out_.string(),
                "the texts give more than the 2147483647 tokens that the header counts",
                "make several files; dataset.file_pattern can name all of them");
  std::vector<uint16_t> narrow;
  if (width_ == 2) narrow.assign(tokens.begin(), tokens.end());
  const void* from = width_ == 2 ? static_cast<const void*>(narrow.data()) : tokens.data();
  file_.write(static_cast<const char*>(from),
              static_cast<std::streamsize>(tokens.size() * static_cast<size_t>(width_)));
  if (!file_) throw cannot_write(out_);
}

void TokenWriter::finish() {
  file_.seekp(0);
  write_header();
  file_.close();
  if (!file_) throw cannot_write(out_);
  checkpoint::sync(partial_);
  std::error_code failed;
  fs::rename(partial_, out_, failed);
  if (failed) throw Error(ErrorCode::io, out_.string(), "cannot be written: " + failed.message());
  finished_ = true;
  checkpoint::sync(out_.has_parent_path() ? out_.parent_path() : ".");
}

}  // namespace heddle
