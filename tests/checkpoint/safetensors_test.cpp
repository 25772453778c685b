// Reading boxes of safetensors files, and errors of headers, which name the file and the tensor.
#include "heddle/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "checkpoint/folder.h"
#include "checkpoint/write_safetensors.h"

namespace heddle {
namespace {

using tests::error_of;
using tests::Folder;

const std::string kAgain = "\n  hint: write or download the file again";

std::string bytes_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data, 'x');
}

std::string refusal(const std::string& bytes) {
  const Folder folder;
  const auto file = folder.write("x.safetensors", bytes);
  return error_of(folder, [&] { SafetensorsFile opened(file); });
}

std::string refusal(const std::string& header, size_t data) {
  return refusal(bytes_of(header, data));
}

at::Tensor read_back(const SafetensorsFile& file, const std::string& name, std::vector<int64_t> offset,
                     std::vector<int64_t> size, at::ScalarType dtype) {
  at::Tensor out = at::empty(size, dtype);
  file.read(name, offset, out);
  return out;
}

TEST(Safetensors, WritesWhatItReads) {
  const Folder folder;
  at::manual_seed(1);
  std::vector<std::pair<std::string, at::Tensor>> tensors{{"b", at::randn({3, 5})},
                                                          {"a", at::randn({7}).to(at::kBFloat16)},
                                                          {"none", at::empty({0, 4})},
                                                          {"scalar", at::full({}, 3.5)},
                                                          {"long", at::arange(6, at::kLong).view({2, 3})},
                                                          {"c", at::randn({5}, at::kDouble)}};
  tests::write_safetensors(folder / "x.safetensors", tensors);
  const SafetensorsFile file(folder / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor back = read_back(file, name, std::vector<int64_t>(tensor.dim(), 0), tensor.sizes().vec(),
                                      tensor.scalar_type());
    EXPECT_TRUE(at::equal(back, tensor)) << name;
  }
}

TEST(Safetensors, ReadsEveryBoxOfATensorOfThreeDims) {
  const Folder folder;
  const at::Tensor whole = at::arange(60, at::kFloat).view({3, 4, 5});
  tests::write_safetensors(folder / "x", std::vector<std::pair<std::string, at::Tensor>>{{"w", whole}});
  const SafetensorsFile file(folder / "x");
  int boxes = 0;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t k = 0; k < 5; ++k)
        for (int64_t a = 0; a <= 3 - i; ++a)
          for (int64_t b = 0; b <= 4 - j; ++b)
            for (int64_t c = 0; c <= 5 - k; ++c, ++boxes) {
              const at::Tensor box = whole.narrow(0, i, a).narrow(1, j, b).narrow(2, k, c);
              ASSERT_TRUE(at::equal(read_back(file, "w", {i, j, k}, {a, b, c}, at::kFloat), box));
            }
  EXPECT_EQ(boxes, 9 * 14 * 20);
}

TEST(Safetensors, ConvertsTheDtypeAndFillsAViewInPlace) {
  const Folder folder;
  const at::Tensor whole = at::arange(12, at::kFloat).view({4, 3});
  tests::write_safetensors(folder / "x", std::vector<std::pair<std::string, at::Tensor>>{{"w", whole}});
  const SafetensorsFile file(folder / "x");
  EXPECT_TRUE(at::equal(read_back(file, "w", {1, 0}, {2, 3}, at::kBFloat16),
                        whole.narrow(0, 1, 2).to(at::kBFloat16)));
  at::Tensor wide = at::zeros({2, 6});
  file.read("w", std::vector<int64_t>{2, 0}, wide.narrow(1, 2, 3));
  EXPECT_TRUE(at::equal(wide.narrow(1, 2, 3), whole.narrow(0, 2, 2)));
  EXPECT_EQ(wide.narrow(1, 0, 2).sum().item<float>(), 0.0F);
}

TEST(Safetensors, ReadsTensorsThatLieAtOddBytes) {
  const Folder folder;
  std::string bytes = bytes_of(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      0);
  const float value = 2.5F;
  bytes += std::string(1, '\7') + std::string(reinterpret_cast<const char*>(&value), 4);
  const SafetensorsFile file(folder.write("x", bytes));
  EXPECT_EQ(read_back(file, "b", {0}, {1}, at::kFloat).item<float>(), 2.5F);
}

TEST(Safetensors, RefusesABoxOutsideTheTensor) {
  const Folder folder;
  tests::write_safetensors(folder / "x",
                           std::vector<std::pair<std::string, at::Tensor>>{{"w", at::zeros({4, 3})}});
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(error_of(folder,
                     [&] {
                       read_back(file, "w", {3, 0}, {2, 3}, at::kFloat);
                     }),
            "error[input] FOLDER/x: tensor \"w\" has the shape [4, 3]; asked for [2, 3] at [3, 0]");
  EXPECT_EQ(error_of(folder, [&] { read_back(file, "v", {0}, {1}, at::kFloat); }),
            "error[input] FOLDER/x: holds no tensor \"v\"");
}

TEST(Safetensors, RefusesAFileThatIsNotThere) {
  const Folder folder;
  EXPECT_EQ(error_of(folder, [&] { SafetensorsFile file(folder / "x"); }),
            "error[input] FOLDER/x: cannot be read: No such file or directory\n"
            "  hint: is the file there, and may it be read? copy it again, or resume from another");
}

TEST(Safetensors, RefusesACutFile) {
  const std::string at = "error[input] FOLDER/x.safetensors: ";
  EXPECT_EQ(refusal(""), at + "cut: 0 bytes, a safetensors file starts with 8 bytes of length" + kAgain);
  EXPECT_EQ(refusal(bytes_of("{}", 0).substr(0, 9)),
            at + "cut: the header needs 2 bytes, the file holds 1" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7),
            at + "tensor \"w\": the bytes 0 to 8 are not in the file, which holds 7" + kAgain);
}

TEST(Safetensors, RefusesAFileOfAnotherKind) {
  EXPECT_EQ(
      refusal("PK\3\4 this is a zip file, surely"),
      "error[input] FOLDER/x.safetensors: the header's length of 7595448452415441744 bytes is too large\n"
      "  hint: is this a safetensors file?");
}

TEST(Safetensors, RefusesAHeaderThatIsNoJsonObject) {
  EXPECT_NE(refusal("{\"w\":", 0).find("FOLDER/x.safetensors: the header is not JSON: "), std::string::npos);
  EXPECT_LT(refusal("{\"w\":" + std::string(500, ' '), 0).size(), 300u);
  EXPECT_EQ(refusal("[1]", 0), "error[input] FOLDER/x.safetensors: the header is not a JSON object" + kAgain);
}

TEST(Safetensors, RefusesANameGivenTwice) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(refusal("{\"w\":" + entry + ",\"w\":" + entry + "}", 1),
            "error[input] FOLDER/x.safetensors: the header holds \"w\" twice" + kAgain);
}

TEST(Safetensors, RefusesEveryFaultyEntry) {
  const std::string at = "error[input] FOLDER/x.safetensors: tensor \"w\": ";
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})", 8),
            at + "the dtype \"F4\" is not known" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
            at + "the shape holds -2, not a size" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            at + "shape [3] of F32 takes 12 bytes, the offsets give 8" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
            at + "shape [4611686018427387904,4] of F32 takes too many bytes, the offsets give 8" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[8,0]}})", 8),
            at + "the bytes 8 to 0 are not in the file, which holds 8" + kAgain);
  EXPECT_EQ(refusal(R"({"w":{"dtype":"F32","shape":[2]}})", 8),
            at + R"(expected dtype, shape and two data_offsets, got {"dtype":"F32","shape":[2]})" + kAgain);
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const std::string at = "error[input] FOLDER/x.safetensors: ";
  const auto two = [](int a, int b, int c, int d) {
    const auto entry = [](int begin, int end) {
      return R"({"dtype":"U8","shape":[)" + std::to_string(end - begin) + R"(],"data_offsets":[)" +
             std::to_string(begin) + "," + std::to_string(end) + "]}";
    };
    return R"({"v":)" + entry(a, b) + R"(,"w":)" + entry(c, d) + "}";
  };
  EXPECT_EQ(refusal(two(0, 4, 3, 8), 8),
            at + "tensor \"w\": its bytes overlap those of another tensor" + kAgain);
  EXPECT_EQ(refusal(two(0, 4, 6, 8), 8), at + "tensor \"w\": there is a hole of 2 bytes before it" + kAgain);
  EXPECT_EQ(refusal(two(0, 4, 4, 8), 9), at + "the tensors end at byte 8 of 9" + kAgain);
  EXPECT_EQ(refusal(two(0, 4, 4, 8), 8), "no error");
}

// Limits the size of written files to `bytes`, as a full disk does. The destructor restores the limit.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  void (*before_)(int);
  rlimit limit_{};
};

TEST(Safetensors, KeepsTheOldFileWhenThereIsNoRoomForTheNew) {
  const Folder folder;
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  tests::write_safetensors(folder / "x", Named{{"w", at::ones({4})}});
  {
    const SmallDisk disk(1000);
    EXPECT_EQ(error_of(folder,
                       [&] {
                         tests::write_safetensors(folder / "x", Named{{"w", at::zeros({4000})}});
                       }),
              "error[io] FOLDER/x: cannot be written: File too large\n"
              "  hint: make room on the disk, or write to another directory; the previous file is untouched");
  }
  EXPECT_EQ(read_back(SafetensorsFile(folder / "x"), "w", {0}, {4}, at::kFloat).sum().item<float>(), 4.0F);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "a temporary file is left";
}

TEST(Safetensors, NamesADirectoryThatIsNotThere) {
  const Folder folder;
  EXPECT_EQ(error_of(folder, [&] { tests::write_safetensors(folder / "no/x", {}); }),
            "error[io] FOLDER/no/x: cannot be created: No such file or directory\n"
            "  hint: check that the directory exists and that it may be written to");
}

}  // namespace
}  // namespace heddle
