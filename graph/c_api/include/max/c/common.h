/* The version and status objects. A function that is given a status writes success or failure into it. */
#ifndef MAX_C_COMMON_H
#define MAX_C_COMMON_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

EINKORN_API const char *M_version(void);
EINKORN_API M_Status *M_newStatus(void);
EINKORN_API const char *M_getError(const M_Status *status);
EINKORN_API int M_isError(const M_Status *status);
EINKORN_API void M_freeStatus(M_Status *status);

#ifdef __cplusplus
}
#endif
#endif
