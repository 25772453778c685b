// Runs a Python script of heddle in a separate process, with messages over a socket.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace heddle {

// A message: a JSON object and a payload of bytes.
struct Message {
  nlohmann::json words;
  std::string payload;
};

// Uses $HEDDLE_PYTHON, else python3. Handles one request at a time; the process exits with this object.
class PythonProcess {
 public:
  // SCRIPT is in share/heddle of the build or the installation; it receives ARGUMENT and the number of its
  // socket. Throws Error{input} if Python cannot be started, Error{internal} if the script does not exist.
  PythonProcess(const std::string& script, const std::string& argument);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // send() and receive() throw Error{internal} if the process has exited, and say how it exited.
  void send(nlohmann::json words, std::string_view payload = {});
  Message receive();

  // Whether a message starts to arrive within `patience`; an exit of the process counts as a message.
  bool has_message(std::chrono::nanoseconds patience) const;

  static std::string python();  // command of the interpreter

 private:
  [[noreturn]] void fail();
  void write(std::string_view bytes);
  std::string read(size_t bytes);

  pid_t process_ = -1;
  int socket_ = -1;
  std::string buffer_;  // received bytes that are not consumed yet
};

}  // namespace heddle
