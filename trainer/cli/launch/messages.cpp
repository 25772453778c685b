// Error blocks on standard error, and one JSON answer on standard output.
#include "trainer/cli/launch/messages.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <string>

#include "heddle/base/error.h"
#include "trainer/cli/launch/launch.h"
#include "trainer/cli/launch/shared_memory.h"

namespace heddle::launch {
namespace {

// Whether a rank has answered, in memory that the ranks share. Null: JSON is not requested.
std::atomic<bool>* answered = nullptr;
bool is_forked_rank = false;
// Hashes of the errors that ranks have printed, in memory that the ranks share; 0: free.
constexpr size_t kErrors = 16;
std::atomic<size_t>* printed = nullptr;
std::atomic<bool>* progress_line = nullptr;  // whether the progress line is open
std::atomic<pid_t> guarded = 0;              // process that an ExitGuard guards; 0: none

void end_line() {
  if (progress_line != nullptr && progress_line->exchange(false)) write_all(STDOUT_FILENO, "\n");
}

// Whether this rank prints a block: it is the first to ask, or kErrors other blocks were printed before.
bool prints(std::string_view block) {
  if (!is_forked_rank) return true;
  const size_t hash = std::max<size_t>(std::hash<std::string_view>{}(block), 1);
  for (size_t i = 0; i < kErrors; ++i) {
    size_t found = 0;
    if (printed[i].compare_exchange_strong(found, hash)) return true;
    if (found == hash) return false;
  }
  return true;
}

const void* module_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// Returns the file whose code called exit(): the first frame outside of this library and libc.
std::string caller_of_exit() {
  std::array<void*, 32> frames{};
  const auto end = frames.begin() + ::backtrace(frames.data(), static_cast<int>(frames.size()));
  const void* own = module_of(reinterpret_cast<const void*>(&write_all));
  // A sanitizer's backtrace() is a frame before this function.
  auto at = std::find_if(frames.begin(), end, [&](const void* frame) { return module_of(frame) == own; });
  at = std::find_if(at, end, [&](const void* frame) { return module_of(frame) != own; });
  const void* libc = at == end ? nullptr : module_of(*at);
  at = std::find_if(at, end, [&](const void* frame) { return module_of(frame) != libc; });
  Dl_info info{};
  return at != end && ::dladdr(*at, &info) != 0 ? info.dli_fname : "";
}

void refuse_exit() {
  if (guarded != ::getpid()) return;
  const std::string caller = caller_of_exit();
  end(Error(ErrorCode::internal, caller.empty() ? "heddle" : caller,
            "exit() was called before the command was finished" +
                std::string(caller.empty() ? ", by a plugin or a library" : ""),
            "a plugin must report errors by throwing heddle::Error and must not exit the process"));
}

}  // namespace

ExitGuard::ExitGuard() : before_(guarded.exchange(::getpid())) {
  // Registered by each guard: handlers run in reverse order, and destructors of plugins may wait for other
  // threads.
  if (std::atexit(refuse_exit) != 0 || std::at_quick_exit(refuse_exit) != 0)
    throw Error(ErrorCode::internal, "memory", "no memory for a handler of exit()");
}

ExitGuard::~ExitGuard() {
  guarded = before_;
}

void write_all(int file, std::string_view text) {
  [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
}

void end_before_messages(std::atomic<bool>& open_line) {
  progress_line = &open_line;
}

// Writes a message in one call, because on a terminal the rank that shows the progress may write in between.
void write_message(std::string_view text) {
  if (::isatty(STDERR_FILENO) == 0) {
    end_line();
    return write_all(STDERR_FILENO, text);
  }
  const bool is_open = progress_line != nullptr && progress_line->exchange(false);
  char newline[] = "\n";
  const iovec parts[] = {{newline, is_open ? size_t{1} : size_t{0}},
                         {const_cast<char*>(text.data()), text.size()}};
  [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, parts, 2);
}

Log log_of(int rank) {
  const LogLevel least = rank == 0 ? LogLevel::info : LogLevel::warning;
  return Log([rank, least](LogLevel level, std::string_view room, std::string_view text) {
    if (level < least) return;
    const char* mark = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
    write_message("[rank " + std::to_string(rank) + "] [" + std::string(room) + "] " + mark +
                  std::string(text) + "\n");
  });
}

void speak_as_rank() {
  is_forked_rank = true;
}

void print_equal_errors_once() {
  if (printed == nullptr)
    printed = static_cast<std::atomic<size_t>*>(shared_memory(kErrors * sizeof(std::atomic<size_t>)));
  for (size_t i = 0; i < kErrors; ++i) new (printed + i) std::atomic<size_t>(0);
}

void answer(const Error& error) {
  if (answered != nullptr && !answered->exchange(true)) write_all(STDOUT_FILENO, to_json(error) + "\n");
}

void say(const Error& error) {
  const std::string block = std::string(error.what()) + "\n";
  end_line();  // may wait for a reader, so it comes before another rank leaves the block to this one
  if (prints(block)) write_all(STDERR_FILENO, block);
  if (!is_forked_rank || error.code() != ErrorCode::rank_lost) answer(error);
}

Error as_error(const std::exception& thrown) {
  if (const auto* own = dynamic_cast<const Error*>(&thrown)) return *own;
  if (const auto memory = out_of_memory(thrown)) return *memory;
  return Error(ErrorCode::internal, "heddle", thrown.what());
}

void finish_output() {
  std::fflush(stdout);
  if (!(std::cout << std::flush)) throw Error(ErrorCode::io, "standard output", "cannot be written");
}

void end(const std::exception& error) {
  static std::atomic<bool> ending = false;
  if (ending.exchange(true)) {
    for (;;) ::pause();  // another thread prints its block and exits the process
  }
  if (const auto* list = dynamic_cast<const ErrorList*>(&error)) {
    say(*list);
    ::_exit(exit_status(list->code()));
  }
  const Error own = as_error(error);
  say(own);
  ::_exit(exit_status(own.code()));  // no flush: another thread may hold a stream
}

void end_interrupted() {
  write_message("error[rank_lost] launch: interrupted by a signal\n");
  if (answered != nullptr)
    write_all(STDOUT_FILENO,
              "{\"error\": {\"code\": \"rank_lost\", \"where\": \"launch\", \"what\": \"interrupted by a "
              "signal\", \"hint\": \"\"}}\n");
  ::_exit(1);
}

void answer_in_json() {
  answered = new (shared_memory(sizeof(std::atomic<bool>))) std::atomic<bool>(false);
}

}  // namespace heddle::launch
