// Build tool that compiles kernels.cu with NVRTC, without a GPU, and writes an image per architecture and PTX
// for later architectures.
//   compile_kernels SOURCE INCLUDE_DIRECTORY OUT_DIRECTORY
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& why) {
  std::cerr << "compile_kernels: " << why << "\n";
  std::exit(1);
}

void check(nvrtcResult result, const char* call) {
  if (result != NVRTC_SUCCESS) fail(std::string(call) + ": " + nvrtcGetErrorString(result));
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string log_of(nvrtcProgram program) {
  size_t size = 0;
  check(nvrtcGetProgramLogSize(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, ' ');
  check(nvrtcGetProgramLog(program, log.data()), "nvrtcGetProgramLog");
  return log.c_str();  // drops the terminating 0
}

// Spilled registers are an error of the kernel's source.
void refuse_spills(const std::string& log) {
  static const std::regex spill("([1-9][0-9]*) bytes spill");
  if (std::regex_search(log, spill)) fail("a kernel spills registers:\n" + log);
}

void compile(const std::string& source, const std::string& include, const std::string& target,
             const std::string& out) {
  nvrtcProgram program = nullptr;
  check(nvrtcCreateProgram(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  const std::string architecture = "--gpu-architecture=" + target, directory = "--include-path=" + include;
  std::vector<const char*> options{architecture.c_str(), directory.c_str(), "--std=c++17"};
  const bool is_code = target.rfind("sm_", 0) == 0;
  if (is_code) options.push_back("--ptxas-options=-v");
  const nvrtcResult result = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  const std::string log = log_of(program);
  if (result != NVRTC_SUCCESS) fail("for " + target + ": " + nvrtcGetErrorString(result) + "\n" + log);
  refuse_spills(log);
  size_t size = 0;
  check(is_code ? nvrtcGetCUBINSize(program, &size) : nvrtcGetPTXSize(program, &size),
        "the size of the image");
  std::string image(size, '\0');
  check(is_code ? nvrtcGetCUBIN(program, image.data()) : nvrtcGetPTX(program, image.data()), "the image");
  std::ofstream file(out + "/" + (is_code ? target : "ptx") + ".image", std::ios::binary);
  file.write(image.data(), static_cast<std::streamsize>(image.size()));
  if (!file.flush()) fail("cannot write into " + out);
  std::ofstream(out + "/" + target + ".log") << log;
  check(nvrtcDestroyProgram(&program), "nvrtcDestroyProgram");
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) fail("usage: compile_kernels SOURCE INCLUDE_DIRECTORY OUT_DIRECTORY");
  const std::string source = read(words[1]);
  for (const char* target : {"sm_80", "sm_90", "sm_100", "compute_80"})
    compile(source, words[2], target, words[3]);
}
