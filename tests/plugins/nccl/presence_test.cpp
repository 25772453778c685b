// Missing requirements that the plugin nccl reports, in the order in which a person would check them.
#include <gtest/gtest.h>

#include "plugins/nccl/presence.h"

namespace heddle::nccl {
namespace {

Probe complete() {
  Probe probe;
  probe.driver = true;
  probe.gpus = 2;
  probe.torch_directory = "/torch/lib";
  probe.torch_has_cuda = true;
  return probe;
}

TEST(NcclPresence, FindsAGpuWhenNothingIsMissing) {
  EXPECT_EQ(why_absent(complete()), "");
  Probe one = complete();
  one.visible = "1";
  EXPECT_EQ(why_absent(one), "");
}

TEST(NcclPresence, NamesEveryMissingPart) {
  Probe probe = complete();
  probe.torch_has_cuda = false;
  EXPECT_EQ(why_absent(probe),
            "the LibTorch in '/torch/lib' has no libtorch_cuda.so, so it is a build for the CPU");
  probe.visible = "";
  EXPECT_EQ(why_absent(probe), "CUDA_VISIBLE_DEVICES is '', which hides every GPU");
  probe.visible = "-1";
  EXPECT_EQ(why_absent(probe), "CUDA_VISIBLE_DEVICES is '-1', which hides every GPU");
  probe.gpus = 0;
  EXPECT_EQ(why_absent(probe), "there is an NVIDIA driver, but no GPU");
  probe.driver = false;
  EXPECT_EQ(why_absent(probe),
            "there is no NVIDIA driver (neither libnvidia-ml.so.1 nor libcuda.so.1 can be opened)");
}

}  // namespace
}  // namespace heddle::nccl
