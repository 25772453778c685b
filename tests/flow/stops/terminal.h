// A program in its own terminal, as a user starts it.
#pragma once

#include <sys/types.h>

#include <string>

#include "flow/program.h"

namespace flow {

class Terminal {
 public:
  // words[0]: path of the program. The terminal has `columns` columns.
  Terminal(const Words& words, unsigned short columns);
  ~Terminal();  // kills the rest of the session
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Presses keys: "\x03" is Ctrl-C.
  void press(const std::string& keys) const;
  // Reads until the program ends. Returns the status of waitpid().
  int wait();
  // Everything shown, with "\r\n" at line ends. Complete after wait().
  const std::string& shown() const { return shown_; }
  // Reads until the text is shown. Returns false if the program ends first.
  bool shows(const std::string& text);

 private:
  bool read_more();

  pid_t pid_ = -1;
  int screen_ = -1;
  std::string shown_;
};

}  // namespace flow
