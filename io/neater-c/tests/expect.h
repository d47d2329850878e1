/* What the programs that are tests have in common. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#include <neater.h>

/* Ends the program where the condition does not hold. */
#define EXPECT(condition)                                                                                          \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, neater_error_text(neater_last_error()));    \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

#endif
