// What a process of a run prints before it ends: blocks of errors, as JSON too where that was asked for.
#pragma once

#include <exception>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::launch {

void write_all(int file, std::string_view text);

// This process is a rank of ours: where it lost another rank, it leaves the answer in JSON to that one, or to
// the launcher.
void speak_as_rank();

// The first answer of all processes of the run, where JSON is asked for.
void answer(const Error& error);

// The block of an error on standard error, in one write, so that those of several ranks do not mix; and the
// answer.
void say(const Error& error);
void say(const std::exception& error);

}  // namespace heddle::launch
