// Handler of fatal signals that allocates no memory.
#include "trainer/cli/launch/crash.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "lib/run/loop/run.h"
#include "trainer/cli/launch/messages.h"

namespace heddle::launch {
namespace {

struct Fatal {
  int number;
  const char* name;
};
constexpr std::array<Fatal, 5> kFatal = {
    {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}}};
constexpr unsigned kSecondsToSpeak = 5;

std::atomic<int> rank_of_process = 0;
std::atomic<bool> crashing = false;
// own stack, because the thread's stack may have overflowed
alignas(16) std::array<char, 1 << 16> handler_stack;

class CrashLine {
 public:
  CrashLine& add(std::string_view more) {
    const size_t count = std::min(more.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, more.data(), count);
    size_ += count;
    return *this;
  }
  CrashLine& add(uintptr_t number, unsigned base) {
    std::array<char, 24> digits;
    size_t at = digits.size();
    do digits[--at] = "0123456789abcdef"[number % base];
    while ((number /= base) != 0);
    return add(base == 16 ? "0x" : "").add({digits.data() + at, digits.size() - at});
  }
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 4096> text_;
  size_t size_ = 0;
};

uintptr_t instruction_of(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return context.uc_mcontext.pc;
#else
  return 0;
#endif
}

// Whether a file is a plugin. heddle's own libraries have names of the same form.
bool is_plugin(std::string_view file) {
  constexpr std::array<std::string_view, 4> kOwn = {"libheddle_base.so", "libheddle_run.so",
                                                    "libheddle_trainer.so", "libheddle_kits.so"};
  const std::string_view name = file.substr(file.rfind('/') + 1);
  return name.starts_with("libheddle_") && std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end();
}

// Returns the location of the first plugin frame, else of the faulting instruction.
Dl_info blamed(uintptr_t& place) {
  std::array<void*, 64> frames{};
  const auto end = frames.begin() + ::backtrace(frames.data(), static_cast<int>(frames.size()));
  Dl_info info{};
  for (auto frame = frames.begin(); frame != end; ++frame) {
    const auto address = reinterpret_cast<uintptr_t>(*frame);
    if (::dladdr(*frame, &info) == 0 || !is_plugin(info.dli_fname)) continue;
    if (address != place) place = address - 1;  // address of the call, not of the return
    return info;
  }
  if (::dladdr(reinterpret_cast<void*>(place), &info) == 0) info = {};
  return info;
}

void say_crash(const char* signal, uintptr_t place) {
  const Dl_info info = blamed(place);
  const char* const file = info.dli_fname == nullptr ? "heddle" : info.dli_fname;
  place -= reinterpret_cast<uintptr_t>(info.dli_fbase);
  CrashLine text;
  text.add("error[internal] ").add(file).add(": crashed (").add(signal).add(") on rank ");
  text.add(static_cast<uintptr_t>(rank_of_process.load()), 10).add(", at ").add(place, 16);
  if (info.dli_sname != nullptr) text.add(" in ").add(info.dli_sname);
  const auto [plugin, doing] = running_plugin_call();
  if (!plugin.empty()) text.add("; in the plugin '").add(plugin).add("': ").add(doing);
  text.add("\n  hint: addr2line -Cfie ").add(file).add(" ").add(place, 16);
  text.add(" shows the function, and the line if it was built with -g\n");
  write_message(text.view());
}

void crashed(int number, siginfo_t* info, void* context) {
  if (crashing.exchange(true))
    for (;;) ::pause();  // another thread ends the process
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kSecondsToSpeak);  // the loader may hold a lock
  const auto fatal =
      std::find_if(kFatal.begin(), kFatal.end(), [&](const Fatal& one) { return one.number == number; });
  say_crash(fatal->name, instruction_of(*static_cast<const ucontext_t*>(context)));
  ::signal(number, SIG_DFL);
  if (info->si_code <= 0) ::raise(number);  // a signal that was sent; a fault repeats by itself
}

}  // namespace

void name_crashes(int rank) {
  rank_of_process = rank;
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads the unwinder now, because the handler must not
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
    stack = {};
    stack.ss_sp = handler_stack.data();
    stack.ss_size = handler_stack.size();
    ::sigaltstack(&stack, nullptr);
  }
  for (const Fatal& fatal : kFatal) {
    struct sigaction action {};
    if (::sigaction(fatal.number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = crashed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(fatal.number, &action, nullptr);
  }
}

}  // namespace heddle::launch
