// Tokenizes texts into token files.
#include "lib/data/tokens/write_tokens.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "heddle/base/error.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/data/tokenizer/tokenizer.h"
#include "lib/data/tokens/token_file.h"
#include "lib/data/tokens/token_note.h"
#include "lib/data/tokens/token_writer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = 4 << 20;  // bytes of text per request to the tokenizer

void append(std::istream& in, TokenWriter& out) {
  std::array<char, 1 << 16> bytes;
  std::array<uint32_t, bytes.size()> tokens;
  while (in.read(bytes.data(), bytes.size()), in.gcount() > 0) {
    const size_t got = static_cast<size_t>(in.gcount());
    for (size_t i = 0; i < got; ++i) tokens[i] = static_cast<uint8_t>(bytes[i]);
    out.write({tokens.data(), got});
  }
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void refuse_empty(std::span<const std::string> texts) {
  throw Error(ErrorCode::input, texts.empty() ? "heddle data" : texts.front(), "the text is empty");
}

// Returns documents of about kBatchBytes; empty at the end.
std::vector<std::string> next_batch(DocumentReader& reader) {
  std::vector<std::string> batch;
  size_t bytes = 0;
  for (std::string document; bytes < kBatchBytes && reader.next(document);) {
    bytes += document.size();
    batch.push_back(std::move(document));
  }
  return batch;
}

void write_documents(std::vector<std::vector<uint32_t>> documents, Tokenized& done, TokenWriter& out) {
  for (std::vector<uint32_t>& ids : documents) {
    if (ids.empty() || ids.back() != done.end) ids.push_back(static_cast<uint32_t>(done.end));
    out.write(ids);
    ++done.documents;
  }
  done.tokens = out.size();
}

}  // namespace

int64_t write_byte_tokens(std::span<const std::string> texts, const std::filesystem::path& out) {
  TokenWriter writer(out, 2, TokenWriter::Content::bytes);
  for (const std::string& text : texts) {
    if (text == "-") {
      append(std::cin, writer);
      continue;
    }
    std::ifstream file(text, std::ios::binary);
    if (!file || std::filesystem::is_directory(text))
      throw Error(ErrorCode::input, text,
                  std::string("cannot be read: ") + std::strerror(file ? EISDIR : errno));
    append(file, writer);
  }
  if (writer.size() == 0) refuse_empty(texts);
  remove_note(out);
  writer.finish();
  return writer.size();
}

Tokenized write_text_tokens(std::span<const std::string> texts, const std::filesystem::path& out,
                            const Tokenization& how, const std::function<void(const Tokenized&)>& progress) {
  Tokenizer tokenizer(how.tokenizer);
  Tokenized done;
  done.end = separator(how.tokenizer, how.end_token, tokenizer);
  done.width = tokenizer.vocabulary() <= 1 << 16 ? 2 : 4;
  DocumentReader reader({texts.begin(), texts.end()}, how.form);
  std::vector<std::string> batch = next_batch(reader);
  if (batch.empty()) refuse_empty(texts);
  TokenWriter writer(out, done.width, TokenWriter::Content::tokens);
  while (!batch.empty()) {
    tokenizer.begin_encoding(batch);
    const int64_t bytes = reader.bytes();
    batch = next_batch(reader);  // while the tokenizer works
    write_documents(tokenizer.end_encoding(), done, writer);
    done.bytes = bytes;
    if (progress) progress(done);
  }
  const std::string json = bytes_of(tokenizer.file());
  remove_note(out);
  writer.finish();
  fs::path named = fs::absolute(how.tokenizer).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  write_note(out, {named.filename().string(), checkpoint::checksum(json), tokenizer_content(json),
                   tokenizer.vocabulary(), done.end, TokenFile(out, std::nullopt).digest()});
  return done;
}

}  // namespace heddle
