// A program in a terminal of its own, as a person starts it.
#pragma once

#include <sys/types.h>

#include <string>

#include "flow/program.h"

namespace flow {

class Terminal {
 public:
  // words[0]: a program's path. The terminal is `columns` wide.
  Terminal(const Words& words, unsigned short columns);
  ~Terminal();  // ends what is left of the session
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Presses keys: "\x03" is Ctrl-C.
  void press(const std::string& keys) const;
  // Reads until the program ends; gives what waitpid() says of it.
  int wait();
  // All that was shown, with "\r\n" at the ends of lines; complete after wait().
  const std::string& shown() const { return shown_; }
  // Reads until this was shown; false where the program ended without it.
  bool shows(const std::string& text);

 private:
  bool read_more();

  pid_t pid_ = -1;
  int screen_ = -1;
  std::string shown_;
};

}  // namespace flow
