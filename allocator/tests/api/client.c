/* A C11 client that calls every function of freestone.h; it has to compile without a warning and to run. */
#include <freestone/freestone.h>

static int visit(void *context, void *block, size_t bytes) {
  (void)block;
  *(size_t *)context += bytes;
  return 1;
}

int client_in_cxx(void);

int main(void) {
  struct freestone_stats stats = {.version = FREESTONE_STATS_VERSION};
  struct freestone_limits limits = {.version = FREESTONE_LIMITS_VERSION};
  struct freestone_callbacks callbacks = {.version = FREESTONE_CALLBACKS_VERSION};
  struct freestone_heap_stats heap_stats = {.version = FREESTONE_HEAP_STATS_VERSION};
  const char *damage = "";
  char value[256];
  size_t walked = 0;
  freestone_heap *heap = freestone_heap_create(1 << 20);
  void *block = freestone_heap_allocate(heap, 10);
  block = freestone_heap_reallocate(heap, block, 1000);
  if (freestone_heap_usable_size(heap, block) < 1000) return 1;
  freestone_heap_deallocate(heap, block);
  block = freestone_heap_allocate_aligned(heap, 10, 64);
  if (freestone_heap_allocate_zeroed(heap, 10) == NULL || freestone_heap_walk(heap, visit, &walked) != 2) return 2;
  if (freestone_heap_get_stats(heap, &heap_stats) != 0 || freestone_heap_validate(heap) != 0 ||
      heap_stats.live_blocks != 2)
    return 3;
  if (freestone_heap_destroy(heap) != 2) return 4;
  if (freestone_version()[0] == 0 || freestone_is_active() != 1 || freestone_good_size(100) < 100) return 5;
  if (freestone_get_stats(&stats) != 0 || freestone_stats_write(2, FREESTONE_JSON) != 0) return 6;
  if (freestone_get_limits(&limits) != 0 || freestone_set_limits(&limits) != 0) return 7;
  if (freestone_set_callbacks(&callbacks) != 0 || freestone_validate(&damage) != 0 || damage != NULL) return 8;
  if (freestone_walk(visit, &walked) != 0) return 9;
  if (freestone_option_get("cache_bytes", value, sizeof value) != 0 || freestone_option_set("cache_bytes", value) != 0)
    return 10;
  freestone_flush_thread();
  freestone_trim(0);
  return client_in_cxx();
}
