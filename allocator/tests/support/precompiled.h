// What most tests include, compiled once for all of them. A test includes what it uses all the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>
