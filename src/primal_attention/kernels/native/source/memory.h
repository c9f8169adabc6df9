// Memory of the passes. Up to KEPT bytes in blocks below LARGE are kept from one call to the next:
// fresh pages from the system cost as much as a fifth of a short call. Larger blocks go back at
// once. Those from MAPPED on come from the system, past the heap, in which they would leave holes
// between the tensors of a model.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "products.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace primal {

#if defined(PRIMAL_KEEP_NOTHING)  // so that a sanitizer sees every end
constexpr size_t KEPT = 0;
#else
constexpr size_t KEPT = size_t{24} << 20;
#endif
constexpr size_t LARGE = size_t{12} << 20, MAPPED = size_t{1} << 20;

// Ask for large pages: a long tensor is fresh from the system in nearly every call.
inline void use_large_pages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = size_t{2} << 20;
  uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

struct Release {
  size_t mapped = 0;  // bytes from the system, 0: from the heap
  void operator()(char* data) const {
#if defined(__linux__)
    if (mapped) {
      munmap(data, mapped);
      return;
    }
#endif
    delete[] data;
  }
};

class Pool {
 public:
  using Memory = std::unique_ptr<char[], Release>;

  // At least so many bytes; `size` becomes what there is.
  static Memory take(size_t& size) {
    if (size >= LARGE) return fresh(size);
    {
      std::lock_guard<std::mutex> held(lock());
      auto best = free().end();
      for (auto at = free().begin(); at != free().end(); at++)
        if (at->size >= size && at->size <= 2 * size + 4096)
          if (best == free().end() || at->size < best->size) best = at;
      if (best != free().end()) {
        Memory found = std::move(best->memory);
        size = best->size, total() -= size;
        free().erase(best);
        return found;
      }
    }
    return size < MAPPED ? Memory(new char[size], Release{}) : fresh(size);
  }

  // The oldest make room.
  static void give(Memory memory, size_t size) {
    if (size >= LARGE || size > KEPT) return;
    std::lock_guard<std::mutex> held(lock());
    free().push_back({std::move(memory), size}), total() += size;
    while (total() > KEPT) total() -= free().front().size, free().erase(free().begin());
  }

 private:
  static Memory fresh(size_t size) {
#if defined(__linux__) && !defined(PRIMAL_KEEP_NOTHING)
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    use_large_pages(data, size);
    return Memory(static_cast<char*>(data), Release{size});
#else
    return Memory(new char[size], Release{});
#endif
  }

  struct Block {
    Memory memory;
    size_t size;
  };
  // never destroyed: threads may outlive the end of main
  static std::vector<Block>& free() { static auto* made = new std::vector<Block>; return *made; }
  static std::mutex& lock() { static auto* made = new std::mutex; return *made; }
  static size_t& total() { static size_t sum = 0; return sum; }
};

// Numbers that need no start value, aligned to cache lines; a whole vector may be read at the end.
class Buffer {
 public:
  explicit Buffer(int64_t count = 0)
      : size_(count * sizeof(float) + 128), memory_(Pool::take(size_)) {
    auto address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = reinterpret_cast<float*>((address + 63) / 64 * 64);
  }
  Buffer(Buffer&&) = default;
  ~Buffer() {
    if (memory_) Pool::give(std::move(memory_), size_);
  }
  operator float*() const { return data_; }
  Block block(int64_t rows) const { return {data_, rows * PANEL}; }

 private:
  size_t size_;
  Pool::Memory memory_;
  float* data_;
};

}  // namespace primal
