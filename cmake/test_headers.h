// What is compiled once for tests, after torch_headers.h.
#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
