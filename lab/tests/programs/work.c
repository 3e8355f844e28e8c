// Allocates, fills, reads back and frees blocks; prints a sum of the contents. Exit status 1 when malloc answers NULL.
// work ROUNDS BYTES [HOLD_MS]
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLive = 64 };

int main(int argc, char** argv) {
    const long rounds = argc > 1 ? atol(argv[1]) : 1000;
    const size_t bytes = argc > 2 ? (size_t)atol(argv[2]) : 64;
    unsigned char* live[kLive] = {0};
    uint64_t sum = 0, state = 1;
    for (long i = 0; i < rounds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t slot = state >> 58;
        if (live[slot]) {
            for (size_t k = 0; k < bytes; k++) sum = sum * 31 + live[slot][k];
            free(live[slot]);
        }
        live[slot] = malloc(bytes);
        if (!live[slot]) {
            fprintf(stderr, "work: malloc(%zu) answered NULL\n", bytes);
            return 1;
        }
        memset(live[slot], (int)(state >> 32), bytes);
    }
    printf("%016llx\n", (unsigned long long)sum);
    fflush(stdout);
    if (argc > 3) usleep((useconds_t)atol(argv[3]) * 1000);
    return 0;
}
