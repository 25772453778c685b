// What a process of a run prints before it ends: blocks of errors, as JSON too where that was asked for.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <exception>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/log.h"

namespace heddle::launch {

void write_all(int file, std::string_view text);

// From now on messages of this process and of its ranks first end an open progress line.
void end_before_messages(std::atomic<bool>& open_line);

// Text on standard error, on a line of its own; safe to call from a signal's handler.
void write_message(std::string_view text);

// Warnings and more of a rank, each a message.
Log log_of(int rank);

// This process is a rank of the local launcher: if it lost another rank, it leaves the JSON answer to that
// one, or to the launcher.
void speak_as_rank();

// Before ranks are started: an error that several of them meet is printed by the first. Throws
// Error{internal} without memory to share.
void print_equal_errors_once();

// The first answer of all processes of the run, where JSON is asked for.
void answer(const Error& error);

// The block of an error on standard error, in one write, so that those of several ranks do not mix; and the
// answer.
void say(const Error& error);

// An exception as an Error: a failed allocation is Error{memory}, a foreign exception Error{internal}.
Error as_error(const std::exception& thrown);

// Flushes standard output. Throws Error{io} when it could not be written: a command whose output is lost has
// failed, though its work may be done.
void finish_output();

// While one lives, exit() and quick_exit() in this process end it with status 1 and an Error{internal} that
// names the library that called: the work was not done. Processes that this one forks are not concerned.
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
