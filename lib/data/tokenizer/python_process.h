// A Python script of heddle in a process of its own, asked over a socket.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace heddle {

// A message: an object, and bytes that belong to it.
struct Message {
  nlohmann::json words;
  std::string payload;
};

// The Python is $HEDDLE_PYTHON, else python3. One request at a time; the process ends with this object.
class PythonProcess {
 public:
  // SCRIPT lies in share/heddle of the build or of the installed tree; it gets ARGUMENT and the number of its
  // socket. Throws Error{input} when Python cannot be started, Error{internal} when the script is not there.
  PythonProcess(const std::string& script, const std::string& argument);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Both throw Error{internal} when the process has ended, and say how it ended.
  void send(nlohmann::json words, std::string_view payload = {});
  Message receive();

  // Whether a message begins to arrive within `patience`; the end of the process counts as one.
  bool has_message(std::chrono::nanoseconds patience) const;

  static std::string python();  // as it is called

 private:
  [[noreturn]] void fail();
  void write(std::string_view bytes);
  std::string read(size_t bytes);

  pid_t process_ = -1;
  int socket_ = -1;
  std::string buffer_;  // read, and not taken yet
};

}  // namespace heddle
