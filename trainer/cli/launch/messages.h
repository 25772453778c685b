// Messages of the processes of a run: error blocks, also as JSON, and log lines.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <exception>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/log.h"

namespace heddle::launch {

void write_all(int file, std::string_view text);

// Makes messages of this process and of its ranks terminate an open progress line first.
void end_before_messages(std::atomic<bool>& open_line);

// Writes text to standard error, starting on a new line. Async-signal-safe.
void write_message(std::string_view text);

// Returns the log of a rank; each entry becomes a message.
Log log_of(int rank);

// Marks this process as a rank of the local launcher: if it lost another rank, it leaves the JSON answer to
// that rank or to the launcher.
void speak_as_rank();

// Called before ranks start: an error that several ranks have is printed once, by the first. Throws
// Error{internal} if shared memory cannot be allocated.
void print_equal_errors_once();

// Prints the first error of all processes of the run as JSON, if JSON is requested.
void answer(const Error& error);

// Prints the block of an error on standard error in one write, so that blocks of several ranks do not mix,
// and answers.
void say(const Error& error);

// Converts an exception to an Error: a failed allocation gives Error{memory}, an unknown exception
// Error{internal}.
Error as_error(const std::exception& thrown);

// Flushes standard output. Throws Error{io} if that fails: a command whose output is lost has failed.
void finish_output();

// During its lifetime, exit() and quick_exit() in this process give status 1 and an Error{internal} that
// names the calling library, because the work is not done. Does not affect forked processes.
class ExitGuard {
 public:
  ExitGuard();
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;

 private:
  pid_t before_;
};

}  // namespace heddle::launch
