// Runs the kits in a forked process. The fork comes before LibTorch or Gloo start threads.
#include "trainer/cli/plugins/plugin_check.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "trainer/cli/plugins/kept_errors.h"

namespace heddle::cli {
namespace {

using Event = nlohmann::json;

// Writes one line per event: the rule that starts (a string), a check (a list), an error of the request (a
// map), or the end (null).
void write_line(int pipe, const Event& event) {
  const std::string text = event.dump(-1, ' ', false, Event::error_handler_t::replace) + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(pipe, text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(1);
    at += static_cast<size_t>(count);
  }
}

kits::RunKits* open_kits() {
  void* library = dlopen("libheddle_kits.so", RTLD_NOW | RTLD_LOCAL);
  void* run = library == nullptr ? nullptr : dlsym(library, kits::kRunKits);
  if (run == nullptr)
    throw Error(ErrorCode::internal, "libheddle_kits.so", dlerror(),
                "build the target heddle_kits, or reinstall heddle");
  return reinterpret_cast<kits::RunKits*>(run);
}

// The child's part; never returns.
[[noreturn]] void report_to(int pipe, const std::filesystem::path& file, kits::KitOptions options) {
  const auto write_check = [pipe](const kits::Check& check) {
    write_line(pipe,
               Event::array({check.rule, check.passed, check.detail, check.ran, check.trains, check.offer}));
  };
  options.begins = [pipe](const std::string& rule) { write_line(pipe, rule); };
  options.ended = write_check;
  try {
    kits::Report report;
    open_kits()(file, options, report);
  } catch (const Error& error) {
    if (error.where().starts_with(kits::kFieldsOption))
      write_line(pipe, {{"where", error.where()}, {"what", error.message()}, {"hint", error.hint()}});
    else
      write_check({"the check itself ends", false, error.what()});
  } catch (const std::exception& error) {
    write_check({"the check itself ends", false, error.what()});
  }
  write_line(pipe, Event());
  _exit(0);
}

// Reads the child's output line by line.
class KitListener {
 public:
  explicit KitListener(const kits::KitOptions& options) : options_(options) {}

  void read(int pipe) {
    std::string text;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::read(pipe, bytes, sizeof(bytes))) != 0;) {
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) break;
      text.append(bytes, static_cast<size_t>(count));
      for (size_t end = 0; (end = text.find('\n')) != text.npos; text.erase(0, end + 1))
        take(Event::parse(text.substr(0, end)));
    }
  }

  // Records that the child exited during a kit. said: message of the device, may be empty.
  void ended(const std::string& how, const std::string& said) {
    const bool first = report_.checks.size() < 3;  // the file was not loaded yet
    add({begun_.empty() ? "the check itself ends" : begun_, false,
         "the process ended (" + how + ")" + (said.empty() ? "" : ": " + said) +
             (first ? "; do not throw from static initializers, and register operators in the entry function"
                    : "")});
  }

  // Throws the error of the request, if any.
  kits::Report report() && {
    if (wrong_) throw Error(*wrong_);
    return std::move(report_);
  }
  bool whole() const { return whole_; }  // the last kit has finished

 private:
  void take(const Event& event) {
    if (event.is_null()) return void(whole_ = true);
    if (event.is_string()) return void(begun_ = event.get<std::string>());
    if (event.is_object())
      return void(wrong_.emplace(ErrorCode::config, event["where"].get<std::string>(),
                                 event["what"].get<std::string>(), event["hint"].get<std::string>()));
    add({event[0].get<std::string>(), event[1].get<bool>(), event[2].get<std::string>(), event[3].get<bool>(),
         event[4].get<bool>(), event[5].get<std::string>()});
  }
  void add(kits::Check check) {
    if (options_.ended) options_.ended(check);
    report_.checks.push_back(std::move(check));
  }

  const kits::KitOptions& options_;
  kits::Report report_;
  std::string begun_;
  std::optional<Error> wrong_;
  bool whole_ = false;
};

}  // namespace

kits::Report check_apart(const std::filesystem::path& file, const kits::KitOptions& options) {
  if (!std::filesystem::is_regular_file(file))
    throw Error(ErrorCode::plugin_missing, file.string(), "there is no such plugin file",
                "give the path of a libheddle_*.so");
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
  std::optional<KeptErrors> errors;
  if (options.device) errors.emplace();
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    if (errors) errors->begin_child();
    report_to(ends[1], file, options);
  }
  close(ends[1]);
  KitListener listener(options);
  listener.read(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string said = errors ? errors->text() : "";
  std::cerr << said << std::flush;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !listener.whole())
    listener.ended(WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                       : "exit with status " + std::to_string(WEXITSTATUS(status)),
                   last_words(said, file));
  return std::move(listener).report();
}

}  // namespace heddle::cli
