// Reads the documents of text files: a document is a file, a line, or a field of a JSON line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct DocumentForm {
  bool lines = false;      // each line is a document
  std::string field = {};  // each line is a JSON object with the document in this field; empty: see below
};

// Reads files named *.jsonl as JSON Lines with the field "text" if no field is given. Needs memory for one
// document. Skips empty documents and empty lines.
class HEDDLE_API DocumentReader {
 public:
  // "-" is standard input.
  DocumentReader(std::vector<std::string> files, DocumentForm form);

  // Reads the next document as UTF-8; returns false at the end. Throws Error{input} with FILE:LINE for a file
  // that cannot be read, bytes that are not UTF-8, lines that are not JSON, and fields that are missing or
  // not text.
  bool next(std::string& document);
  int64_t bytes() const { return bytes_; }  // bytes read so far

 private:
  bool open();
  bool read(std::string& document);
  void read_whole(std::string& document);
  std::string where() const;
  std::string text_of(const std::string& line) const;

  std::vector<std::string> files_;
  DocumentForm form_;
  size_t next_file_ = 0;
  std::ifstream file_;
  std::istream* in_ = nullptr;
  std::string name_, field_;
  int64_t line_ = 0, bytes_ = 0;  // number of the last line read, from 1
};

// Returns the position of the first byte that is not valid UTF-8 (RFC 3629), or text.size() if all are valid.
HEDDLE_API size_t valid_utf8(std::string_view text);

}  // namespace heddle
