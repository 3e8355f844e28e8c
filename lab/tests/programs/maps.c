// maps TEXT LIBRARY: what launch.c says of a process whose /proc/PID/maps reads as TEXT.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

static char* text;

static FILE* given(void) { return fmemopen(text, strlen(text), "r"); }

#define fopen(path, mode) given()
#define main launch
#include "launch.c"
#undef main

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    text = argv[1];
    printf("%d\n", maps_name(0, argv[2]));
    return 0;
}
