// Tasks on several threads. Which thread takes which task changes no result.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace primal {

// GOMP_parallel of the OpenMP library that torch itself runs on, or nullptr: its threads are awake.
using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);
inline Team team = nullptr;

// From so many products on, further threads pay.
constexpr int64_t PARALLEL = int64_t{1} << 22;

// f(task, worker) for all tasks; no two threads share a worker, 0 <= worker < threads.
template <class F>
void parallel(int64_t tasks, int64_t threads, F&& f) {
  if (threads > tasks) threads = tasks;
  if (threads <= 1) {
    for (int64_t i = 0; i < tasks; i++) f(i, int64_t{0});
    return;
  }
  struct Shared {
    F& f;
    int64_t tasks;
    std::atomic<int64_t> next_task{0}, next_worker{0};

    static void run(void* self) {
      Shared& shared = *static_cast<Shared*>(self);
      int64_t worker = shared.next_worker++;
      for (int64_t i; (i = shared.next_task++) < shared.tasks;) shared.f(i, worker);
    }
  } shared{f, tasks};
  if (team) {
    team(Shared::run, &shared, static_cast<unsigned>(threads), 0);
    return;
  }
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; i++) others.emplace_back(Shared::run, &shared);
  Shared::run(&shared);
  for (std::thread& other : others) other.join();
}

}  // namespace primal
