// Every form of operator new and delete: alignment, std::bad_alloc, the new-handler.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "support/child.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kSizes[] = {0, 1, 8, 16, 24, 100, 1024, 4096, 50000, 300000, 5000000};
constexpr size_t kImpossible = PTRDIFF_MAX;

struct NewForm {
  const char* name;
  bool throws;
  void* (*allocate)(size_t);
  void (*release)(void*, size_t);
  size_t alignment;

  friend std::ostream& operator<<(std::ostream& out, const NewForm& it) { return out << it.name; }
};

constexpr std::align_val_t k64{64};
constexpr std::align_val_t k8192{8192};
const std::nothrow_t& kNothrow = std::nothrow;

// Each allocating form meets each releasing form that the language allows for it.
const NewForm kForms[] = {
    {"plain_plain", true, [](size_t n) { return ::operator new(n); }, [](void* p, size_t) { ::operator delete(p); },
     16},
    {"plain_sized", true, [](size_t n) { return ::operator new(n); },
     [](void* p, size_t n) { ::operator delete(p, n); }, 16},
    {"plain_nothrow_delete", true, [](size_t n) { return ::operator new(n); },
     [](void* p, size_t) { ::operator delete(p, kNothrow); }, 16},
    {"array_array", true, [](size_t n) { return ::operator new[](n); }, [](void* p, size_t) { ::operator delete[](p); },
     16},
    {"array_sized", true, [](size_t n) { return ::operator new[](n); },
     [](void* p, size_t n) { ::operator delete[](p, n); }, 16},
    {"array_nothrow_delete", true, [](size_t n) { return ::operator new[](n); },
     [](void* p, size_t) { ::operator delete[](p, kNothrow); }, 16},
    {"nothrow_plain", false, [](size_t n) { return ::operator new(n, kNothrow); },
     [](void* p, size_t) { ::operator delete(p); }, 16},
    {"nothrow_sized", false, [](size_t n) { return ::operator new(n, kNothrow); },
     [](void* p, size_t n) { ::operator delete(p, n); }, 16},
    {"nothrow_array", false, [](size_t n) { return ::operator new[](n, kNothrow); },
     [](void* p, size_t n) { ::operator delete[](p, n); }, 16},
    {"aligned_aligned", true, [](size_t n) { return ::operator new(n, k64); },
     [](void* p, size_t) { ::operator delete(p, k64); }, 64},
    {"aligned_sized", true, [](size_t n) { return ::operator new(n, k64); },
     [](void* p, size_t n) { ::operator delete(p, n, k64); }, 64},
    {"aligned_nothrow_delete", true, [](size_t n) { return ::operator new(n, k64); },
     [](void* p, size_t) { ::operator delete(p, k64, kNothrow); }, 64},
    {"aligned_array", true, [](size_t n) { return ::operator new[](n, k8192); },
     [](void* p, size_t) { ::operator delete[](p, k8192); }, 8192},
    {"aligned_array_sized", true, [](size_t n) { return ::operator new[](n, k8192); },
     [](void* p, size_t n) { ::operator delete[](p, n, k8192); }, 8192},
    {"aligned_array_nothrow_delete", true, [](size_t n) { return ::operator new[](n, k64); },
     [](void* p, size_t) { ::operator delete[](p, k64, kNothrow); }, 64},
    {"aligned_nothrow", false, [](size_t n) { return ::operator new(n, k64, kNothrow); },
     [](void* p, size_t n) { ::operator delete(p, n, k64); }, 64},
    {"aligned_array_nothrow", false, [](size_t n) { return ::operator new[](n, k8192, kNothrow); },
     [](void* p, size_t) { ::operator delete[](p, k8192); }, 8192},
};

// Calls are made through a volatile pointer: the compiler may pair and remove new and delete, even when called by name.
void* allocate(const NewForm& form, size_t size) {
  void* (*volatile call)(size_t) = form.allocate;
  return call(size);
}

int handler_calls = 0;
void counting_handler() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}
struct HandlerGaveUp {};

class EveryForm : public testing::TestWithParam<NewForm> {
  void TearDown() override { std::set_new_handler(nullptr); }
};

TEST_P(EveryForm, GivesWritableAlignedBlocksAndTakesThemBack) {
  for (int round = 0; round < 50; ++round)
    for (const size_t size : kSizes) {
      void* block = allocate(GetParam(), size);
      ASSERT_NE(block, nullptr);
      const size_t alignment = GetParam().alignment > 16 || size >= 16 ? GetParam().alignment : 8;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
      std::memset(block, 0x5A, size);
      GetParam().release(block, size);
    }
}

TEST_P(EveryForm, DeletesNull) { GetParam().release(nullptr, 16); }

TEST_P(EveryForm, ReportsAnImpossibleSize) {
  for (const size_t size : {kImpossible, kImpossible + 1, SIZE_MAX - 64, SIZE_MAX}) {
    // libstdc++ 12 rounds the size up to the alignment and overflows to a block of size 0.
    if (!subject().is_freestone && GetParam().alignment > 16 && size > kImpossible + 1) continue;
    if (GetParam().throws)
      EXPECT_THROW(allocate(GetParam(), size), std::bad_alloc) << size;
    else
      EXPECT_EQ(allocate(GetParam(), size), nullptr) << size;
  }
}

TEST_P(EveryForm, CallsTheNewHandlerUntilThereIsNone) {
  handler_calls = 0;
  std::set_new_handler(counting_handler);
  if (GetParam().throws)
    EXPECT_THROW(allocate(GetParam(), kImpossible), std::bad_alloc);
  else
    EXPECT_EQ(allocate(GetParam(), kImpossible), nullptr);
  EXPECT_EQ(handler_calls, 3);
}

TEST_P(EveryForm, LetsTheHandlersExceptionThroughUnlessNothrow) {
  if (GetParam().throws) {
    std::set_new_handler([] { throw HandlerGaveUp(); });
    EXPECT_THROW(allocate(GetParam(), kImpossible), HandlerGaveUp);
  } else {
    std::set_new_handler([] { throw std::bad_alloc(); });
    EXPECT_EQ(allocate(GetParam(), kImpossible), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, EveryForm, testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

void* reserve = nullptr;

TEST(NewHandler, ThatFreesMemoryLetsTheAllocationSucceed) {
  if (kEmulated) GTEST_SKIP() << "the emulator sets no limit";
  const ChildEnd end = run_in_child([] {
    const rlimit limit{size_t{1} << 30, size_t{1} << 30};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) return 10;
    for (size_t size = size_t{1} << 30; reserve == nullptr && size > (size_t{64} << 20); size -= size_t{32} << 20)
      reserve = api().malloc(size);
    if (reserve == nullptr) return 11;
    const size_t wanted = api().malloc_usable_size(reserve) / 4 * 3;
    std::set_new_handler([] {
      ++handler_calls;
      if (handler_calls > 100) _exit(12);
      api().free(reserve);
      reserve = nullptr;
    });
    handler_calls = 0;
    void* block = ::operator new(wanted);
    static_cast<char*>(block)[wanted - 1] = 1;
    ::operator delete(block);
    return handler_calls >= 1 ? 0 : 13;
  });
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
}

TEST(Objects, RoundTripThroughNewExpressions) {
  struct alignas(128) Wide {
    int value[40];
  };
  for (int i = 0; i < 1000; ++i) {
    auto* wide = new Wide[3];
    ASSERT_EQ(reinterpret_cast<uintptr_t>(wide) % 128, 0u);
    auto* text = new std::string(static_cast<size_t>(i), 'x');
    auto* strings = new std::string[7];
    delete[] wide;
    delete text;
    delete[] strings;
  }
}

}  // namespace
}  // namespace freestone_test
