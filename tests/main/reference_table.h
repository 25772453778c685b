// Tables of fields in docs/reference, compared with the schemas of the program.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace heddle::tests {

// Compares a schema with the table below `<!-- fields: NAME -->` in a page of docs/reference. Adds a failure
// if they differ; with HEDDLE_WRITE_DOCS=1 writes the table to the page instead.
inline void expect_reference_table(const std::string& page, const std::string& name,
                                   const std::string& table) {
  const std::string path = HEDDLE_SOURCE_DIR "/docs/reference/" + page;
  std::ostringstream in;
  in << std::ifstream(path, std::ios::binary).rdbuf();
  std::string text = in.str();
  const std::string mark = "<!-- fields: " + name + " -->\n\n";
  const size_t begin = text.find(mark) + mark.size();
  ASSERT_GE(begin, mark.size()) << path << " has no line " << mark;
  const size_t end = text.find("\n\n", begin) + 1;
  ASSERT_GT(end, begin) << path << ": no table follows " << mark;
  if (text.substr(begin, end - begin) == table) return;
  if (std::getenv("HEDDLE_WRITE_DOCS") == nullptr) {
    ADD_FAILURE() << path << ": the table of " << name
                  << " differs. Run this test with HEDDLE_WRITE_DOCS=1.\n"
                  << table;
    return;
  }
  std::ofstream(path, std::ios::binary) << text.replace(begin, end - begin, table);
}

}  // namespace heddle::tests
