// Runs the kits in a forked process. The fork comes before LibTorch or Gloo start threads.
#include "trainer/cli/plugins/plugin_check.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"

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

namespace {

// Demangles a symbol; returns it unchanged if it is not a C++ symbol.
std::string readable(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> out(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && out ? std::string(out.get()) : symbol;
}

// Converts "/a/libx.so(_ZN1a1bEv+0x1c) [0x7f]" to "libx.so(a::b()+0x1c)".
std::string frame_text(const std::string& line) {
  const size_t open = line.find('('), plus = line.find('+', open), close = line.find(')', open);
  if (open == line.npos || close == line.npos || plus == line.npos || plus > close) return line;
  const std::string file = std::filesystem::path(line.substr(0, open)).filename().string();
  return file + "(" + readable(line.substr(open + 1, plus - open - 1)) + line.substr(plus, close - plus + 1);
}

}  // namespace

KeptErrors::KeptErrors() : file_(memfd_create("heddle plugins check", MFD_CLOEXEC)) {
  if (file_ < 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
}

KeptErrors::~KeptErrors() {
  close(file_);
}

void KeptErrors::begin_child() const {
  dup2(file_, STDERR_FILENO);
}

std::string KeptErrors::text() const {
  std::string out;
  char bytes[4096];
  for (ssize_t count = 0;
       (count = pread(file_, bytes, sizeof(bytes), static_cast<off_t>(out.size()))) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    out.append(bytes, static_cast<size_t>(count));
  }
  return out;
}

std::string last_words(const std::string& text, const std::filesystem::path& plugin) {
  std::istringstream lines(text);
  std::string last, frame;
  bool is_own = false;  // the frame is in the plugin
  for (std::string line; std::getline(lines, line);) {
    if (line.find(") [0x") == line.npos && line.find(")[0x") == line.npos) {
      last = line, frame.clear(), is_own = false;
      continue;
    }
    const bool own = line.find("/" + plugin.filename().string() + "(") != line.npos;
    if (frame.empty() || (own && !is_own)) frame = line;
    is_own = is_own || own;
  }
  if (!last.empty() && last.back() == ':') last.pop_back();
  return last + (frame.empty() ? "" : " " + frame_text(frame));
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "heddle plugins check --device";
constexpr const char* kSimulated = "simulated";
constexpr int kSimulatedRanks = 8;

// Looks in each directory of the search path and in its sibling `simulated`. The library is not next to the
// plugins, because a run would use the first device that it finds.
kits::KitDevice simulated() {
  setenv("HEDDLE_SIMULATED", "late", /*replace=*/0);  // read by the library in the kits' process
  const std::string file = "libheddle_simulated.so";
  std::vector<std::string> looked;
  for (const fs::path& place : plugin::search_path({}))
    for (const fs::path& folder : {place, place.parent_path() / kSimulated}) {
      if (fs::is_regular_file(folder / file)) return {kSimulated, folder / file, kSimulatedRanks};
      looked.push_back(folder.string());
    }
  throw Error(ErrorCode::plugin_missing, kWhere, file + " is not in " + text::join(looked),
              "build the target heddle_simulated, or add its directory to HEDDLE_PLUGIN_PATH");
}

// Returns the first available device, as a run without dist_env.backend does.
kits::KitDevice cuda() {
  const std::vector<fs::path> search_path = plugin::search_path({});
  PluginRegistry registry(search_path);
  std::string why;
  for (const PluginFile& file : plugin::files_in(search_path))
    for (const PluginFile::Offer& offer : file.offers) {
      if (offer.kind != OfferedDevice::kKind || offer.name == kSimulated || !file.fault.empty()) continue;
      const std::string absent = registry.device(offer.name)->make()->absent();
      if (absent.empty()) return {offer.name, file.path, 1};
      why += (why.empty() ? "" : "; ") + offer.name + ": " + absent;
    }
  throw Error(
      ErrorCode::plugin_missing, kWhere,
      "no device is available on this machine" + (why.empty() ? ": no plugin offers one" : " (" + why + ")"),
      "use --device simulated, which needs no GPU");
}

}  // namespace

std::optional<kits::KitDevice> device_of_check(const std::string& name) {
  if (name.empty() || name == "cpu") return std::nullopt;
  if (name == kSimulated) return simulated();
  if (name == "cuda") return cuda();
  const std::vector<std::string> names = {"cpu", "cuda", kSimulated};
  const std::string near = text::nearest(name, names);
  throw Error(
      ErrorCode::usage, kWhere, "unknown device '" + name + "'",
      (near.empty() ? "" : "did you mean " + near + "? ") + "available devices: " + text::join(names));
}

}  // namespace heddle::cli
