// Marks exported symbols; all others are hidden.
#pragma once

#define HEDDLE_API __attribute__((visibility("default")))
