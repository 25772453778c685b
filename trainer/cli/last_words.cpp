// Blocks of errors on standard error, and the one answer in JSON.
#include "trainer/cli/last_words.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "trainer/cli/launch.h"

namespace heddle::launch {
namespace {

// In memory that the ranks share: whether one of them has answered. Null: JSON is not asked for.
std::atomic<bool>* answered = nullptr;
bool is_forked_rank = false;

}  // namespace

void write_all(int file, std::string_view text) {
  [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
}

void speak_as_rank() {
  is_forked_rank = true;
}

void answer(const Error& error) {
  if (answered != nullptr && !answered->exchange(true)) write_all(STDOUT_FILENO, error.json() + "\n");
}

void say(const Error& error) {
  write_all(STDERR_FILENO, std::string(error.what()) + "\n");
  if (!is_forked_rank || error.code() != ErrorCode::rank_lost) answer(error);
}

void say(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  say(own != nullptr ? *own : Error(ErrorCode::internal, "heddle", error.what()));
}

void end(const std::exception& error) {
  static std::atomic<bool> ending = false;
  if (ending.exchange(true)) {
    for (;;) ::pause();  // another thread is printing its block and ends the process
  }
  say(error);
  const auto* own = dynamic_cast<const Error*>(&error);
  ::_exit(own ? exit_status(own->code()) : 1);  // no flush: another thread may hold a stream
}

void end_interrupted() {
  write_all(STDERR_FILENO, "error[rank_lost] launch: interrupted by a signal\n");
  if (answered != nullptr)
    write_all(STDOUT_FILENO,
              "{\"error\": {\"code\": \"rank_lost\", \"where\": \"launch\", \"what\": \"interrupted by a "
              "signal\", \"hint\": \"\"}}\n");
  ::_exit(1);
}

void answer_in_json() {
  void* shared =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    throw Error(ErrorCode::internal, "launch",
                std::string("no memory that the ranks share: ") + std::strerror(errno));
  answered = new (shared) std::atomic<bool>(false);
}

}  // namespace heddle::launch
